(** Errors of rescales telescope: they grow with the rise of the reference, not with the number of tiles.

    A key's weight is computed against the reference m_0 of its tile and multiplied by exp(m_{r-1} - m_r) each time the
    reference rises. Every computed exponential of a drop d >= 0 is exp(-d + e) with
      |e| <= t d + c  (t: relative error of the argument, c: log-error of exp),   e = 0 where d = 0:
    exp(0) = 1 is exact, so tiles that leave the maximum where it was are free.

    Main Results
      - rescaled_weight_error: the weight after all rescales is exp(s - m_T + k) with |k| <= t (m_T - s) + (1 + R) c,
        R the number of rises, however many tiles there are.
    Dependencies: the Coq standard library.
    Structure: one exponential; a chain of rescales. *)
From Coq Require Import Reals List Lra.
Import ListNotations.
Open Scope R_scope.

Section Rescale.

Variables t c : R.

(** * One exponential *)

(** `value` may be computed for exp(-d). *)
Definition computes_exp (d value : R) : Prop :=
  exists e, value = exp (- d + e) /\ Rabs e <= t * d + c /\ (d = 0 -> e = 0).

(** * A chain of rescales *)

(** Each rescale: how far the reference rises, and the computed factor. *)
Definition rescales := list (R * R).

Fixpoint rise (l : rescales) : R := match l with [] => 0 | (d, _) :: rest => d + rise rest end.
Fixpoint product (l : rescales) : R := match l with [] => 1 | (_, factor) :: rest => factor * product rest end.
Fixpoint strict_rises (l : rescales) : nat :=
  match l with [] => 0%nat | (d, _) :: rest => if Req_EM_T d 0 then strict_rises rest else S (strict_rises rest) end.

Lemma rescales_error : forall l,
  (forall d factor, In (d, factor) l -> computes_exp d factor) ->
  exists e, product l = exp (- rise l + e) /\ Rabs e <= t * rise l + INR (strict_rises l) * c.
Proof.
  induction l as [|[d factor] l IH]; intro H.
  - exists 0; simpl; split; [rewrite Ropp_0, Rplus_0_r, exp_0; reflexivity | rewrite Rabs_R0; lra].
  - destruct (H d factor (or_introl eq_refl)) as (e1 & -> & H1 & H0).
    destruct IH as (e2 & E2 & H2); [intros; apply H; right; assumption|].
    cbn [product rise strict_rises]; rewrite E2.
    exists (e1 + e2); split; [rewrite <- exp_plus; f_equal; ring|].
    eapply Rle_trans; [apply Rabs_triang|].
    destruct (Req_EM_T d 0) as [Hd|Hd].
    + rewrite (H0 Hd), Hd, Rabs_R0; lra.
    + rewrite S_INR; lra.
Qed.

(** s: the key's score; m: the reference of its tile. *)
Theorem rescaled_weight_error : forall s m weight l,
  0 <= c -> computes_exp (m - s) weight -> (forall d factor, In (d, factor) l -> computes_exp d factor) ->
  exists k, weight * product l = exp (s - (m + rise l) + k) /\
            Rabs k <= t * (m + rise l - s) + (1 + INR (strict_rises l)) * c.
Proof.
  intros s m weight l Hc (e1 & -> & H1 & _) H; destruct (rescales_error l H) as (e2 & -> & H2).
  exists (e1 + e2); split; [rewrite <- exp_plus; f_equal; ring|].
  eapply Rle_trans; [apply Rabs_triang|]; lra.
Qed.

End Rescale.
