(** Finite sums of reals over a list, the language of every other file here.

    Main Results
      - sum_over_app, sum_over_permutation: a sum does not depend on how its terms are grouped or ordered.
      - sum_over_abs: |sum f| <= sum |f|.
    Dependencies: the Coq standard library.
    Structure: definition; algebra; order. *)
From Coq Require Import Reals List Lra Permutation.
Import ListNotations.
Open Scope R_scope.

(** sum_{x in l} f(x) *)
Fixpoint sum_over {A} (f : A -> R) (l : list A) : R :=
  match l with [] => 0 | x :: rest => f x + sum_over f rest end.

(** * Algebra *)

Lemma sum_over_ext : forall A (f g : A -> R) l,
  (forall x, In x l -> f x = g x) -> sum_over f l = sum_over g l.
Proof. induction l; simpl; intros; [reflexivity | rewrite H, IHl; auto]. Qed.

Lemma sum_over_app : forall A (f : A -> R) l r, sum_over f (l ++ r) = sum_over f l + sum_over f r.
Proof. induction l; intros; simpl; [lra | rewrite IHl; lra]. Qed.

Lemma sum_over_permutation : forall A (f : A -> R) l r,
  Permutation l r -> sum_over f l = sum_over f r.
Proof. induction 1; simpl; lra. Qed.

Lemma sum_over_map : forall A B (g : A -> B) (f : B -> R) l,
  sum_over f (map g l) = sum_over (fun x => f (g x)) l.
Proof. induction l; simpl; [reflexivity | rewrite IHl; reflexivity]. Qed.

Lemma sum_over_scale : forall A (f : A -> R) c l, sum_over (fun x => c * f x) l = c * sum_over f l.
Proof. induction l; simpl; [lra | rewrite IHl; lra]. Qed.

Lemma sum_over_plus : forall A (f g : A -> R) l,
  sum_over (fun x => f x + g x) l = sum_over f l + sum_over g l.
Proof. induction l; simpl; [lra | rewrite IHl; lra]. Qed.

Lemma sum_over_minus : forall A (f g : A -> R) l,
  sum_over (fun x => f x - g x) l = sum_over f l - sum_over g l.
Proof. induction l; simpl; [lra | rewrite IHl; lra]. Qed.

(** * Order *)

Lemma sum_over_le : forall A (f g : A -> R) l,
  (forall x, In x l -> f x <= g x) -> sum_over f l <= sum_over g l.
Proof. induction l; simpl; intros; [lra|]. apply Rplus_le_compat; auto. Qed.

Lemma sum_over_nonneg : forall A (f : A -> R) l, (forall x, In x l -> 0 <= f x) -> 0 <= sum_over f l.
Proof. induction l; simpl; intros; [lra|]. apply Rplus_le_le_0_compat; auto. Qed.

Lemma sum_over_pos : forall A (f : A -> R) l, (forall x, 0 < f x) -> l <> [] -> 0 < sum_over f l.
Proof.
  intros A f [|x l] H Hl; [contradiction|]; simpl.
  apply Rplus_lt_le_0_compat; [apply H | apply sum_over_nonneg; intros; apply Rlt_le, H].
Qed.

Lemma sum_over_abs : forall A (f : A -> R) l, Rabs (sum_over f l) <= sum_over (fun x => Rabs (f x)) l.
Proof. induction l; simpl; [rewrite Rabs_R0; lra|]. eapply Rle_trans; [apply Rabs_triang|]; lra. Qed.
