(** Sums in floating point, in any order, with rescales on the way.

    A sum is a tree: leaves are the terms, inner nodes additions, each rounded. A rescale multiplies what has been
    summed so far by a factor alpha, |alpha| <= 1, and rounds, as the denominator and the accumulator of online softmax
    do when the reference rises. A term's exact contribution is the term times the alphas above it. Only the longest
    path counts: a serial sum, a sum by lanes, a sum by tiles and one by atomic additions differ in `depth` alone.

    Main Results
      - sum_tree_factors: computed = sum_j x_j (1 + theta_j) + e with |theta_j| <= (1 + u)^depth - 1 and
        |e| <= (operations) eta (1 + u)^depth.
      - sum_tree_error: the same as a bound on the error.
      - nearest_sum_error: rounding to nearest in a format, no rescale: any order of n terms errs by at most
        ((1 + U)^depth - 1) sum_j |x_j|, without a term for underflow, and depth <= n - 1.
      - nearest_rescaled_sum_error: with rescales, eta is half the least number.
      - fp32_serial_sum_error: acc = round(acc + x_j), one after the other, in fp32.
    Dependencies: sums, rounding, Flocq.
    Structure: trees; one operation; errors of a tree; rounding to nearest; serial sums. *)
From Coq Require Import Reals List Lra Lia.
From Flocq Require Import Core Relative.
From Flashproof Require Import sums rounding.
Import ListNotations.
Open Scope R_scope.

(** * Trees *)

Inductive tree := Leaf (x : R) | Add (l r : tree) | Rescale (alpha : R) (t : tree).

Fixpoint terms (t : tree) : list R :=
  match t with Leaf x => [x] | Add l r => terms l ++ terms r | Rescale alpha t => map (Rmult alpha) (terms t) end.

(** Roundings on the longest path. *)
Fixpoint depth (t : tree) : nat :=
  match t with Leaf _ => 0 | Add l r => S (Nat.max (depth l) (depth r)) | Rescale _ t => S (depth t) end.

Fixpoint operations (t : tree) : nat :=
  match t with Leaf _ => 0 | Add l r => S (operations l + operations r) | Rescale _ t => S (operations t) end.

Fixpoint contracting (t : tree) : Prop :=
  match t with
  | Leaf _ => True
  | Add l r => contracting l /\ contracting r
  | Rescale alpha t => Rabs alpha <= 1 /\ contracting t
  end.

Fixpoint without_rescale (t : tree) : Prop :=
  match t with Leaf _ => True | Add l r => without_rescale l /\ without_rescale r | Rescale _ _ => False end.

Definition exact_sum (t : tree) : R := sum_over (fun x => x) (terms t).
Definition magnitude (t : tree) : R := sum_over Rabs (terms t).

Section Model.

Variables u eta : R.
Hypothesis u_nonneg : 0 <= u.
Hypothesis eta_nonneg : 0 <= eta.

(** Every operation errs by at most u relative and eta absolute. *)
Inductive computes : tree -> R -> Prop :=
  | computes_leaf x : computes (Leaf x) x
  | computes_add l r a b c : computes l a -> computes r b -> rounds u eta (a + b) c -> computes (Add l r) c
  | computes_rescale alpha t a c : computes t a -> rounds u eta (alpha * a) c -> computes (Rescale alpha t) c.

(** * One operation *)

(** computed = sum_j x_j (1 + theta_j) + e, at most n roundings deep, m operations *)
Definition perturbed (n m : nat) (xs : list R) (computed : R) : Prop :=
  exists (l : list (R * R)) e,
    map fst l = xs /\ (forall x theta, In (x, theta) l -> Rabs theta <= (1 + u) ^ n - 1) /\
    Rabs e <= INR m * eta * (1 + u) ^ n /\
    computed = sum_over (fun p => fst p * (1 + snd p)) l + e.

Lemma power_mono : forall n m, (n <= m)%nat -> (1 + u) ^ n <= (1 + u) ^ m.
Proof. intros; apply Rle_pow; [lra | assumption]. Qed.

Lemma power_ge_1 : forall n, 1 <= (1 + u) ^ n.
Proof. intro; apply pow_R1_Rle; lra. Qed.

Lemma perturbed_mono : forall n n' m xs c, (n <= n')%nat -> perturbed n m xs c -> perturbed n' m xs c.
Proof.
  intros n n' m xs c Hn (l & e & E & Ht & He & Ec); exists l, e.
  pose proof (power_mono _ _ Hn); repeat split; auto.
  - intros x theta Hin; specialize (Ht _ _ Hin); lra.
  - eapply Rle_trans; [exact He|]. apply Rmult_le_compat_l; [|assumption].
    apply Rmult_le_pos; [apply pos_INR | assumption].
Qed.

Lemma perturbed_add : forall n ma mb xs ys a b,
  perturbed n ma xs a -> perturbed n mb ys b -> perturbed n (ma + mb) (xs ++ ys) (a + b).
Proof.
  intros n ma mb xs ys a b (la & ea & Ea & Ha & Hea & ->) (lb & eb & Eb & Hb & Heb & ->).
  exists (la ++ lb), (ea + eb); rewrite map_app, sum_over_app, Ea, Eb, plus_INR; repeat split; [| |ring].
  - intros x theta Hin; apply in_app_or in Hin; destruct Hin; eauto.
  - eapply Rle_trans; [apply Rabs_triang|]; lra.
Qed.

Lemma perturbed_scale : forall n m xs a alpha, Rabs alpha <= 1 ->
  perturbed n m xs a -> perturbed n m (map (Rmult alpha) xs) (alpha * a).
Proof.
  intros n m xs a alpha Halpha (l & e & E & Ht & He & ->).
  exists (map (fun p => (alpha * fst p, snd p)) l), (alpha * e); repeat split.
  - rewrite <- E, !map_map; reflexivity.
  - intros x theta Hin; apply in_map_iff in Hin; destruct Hin as ([x' theta'] & Eq & Hin).
    injection Eq as _ <-; eauto.
  - rewrite Rabs_mult; rewrite <- (Rmult_1_l (INR m * eta * (1 + u) ^ n)).
    apply Rmult_le_compat; auto using Rabs_pos.
  - rewrite sum_over_map; simpl. rewrite Rmult_plus_distr_l, <- sum_over_scale; f_equal.
    apply sum_over_ext; intros; ring.
Qed.

Lemma compound_error : forall theta d n, Rabs theta <= (1 + u) ^ n - 1 -> Rabs d <= u ->
  Rabs ((1 + theta) * (1 + d) - 1) <= (1 + u) ^ S n - 1.
Proof.
  intros theta d n Ht Hd; replace ((1 + theta) * (1 + d) - 1) with (theta + d + theta * d) by ring.
  eapply Rle_trans; [apply Rabs_triang|]; rewrite Rabs_mult.
  assert (Rabs theta * Rabs d <= ((1 + u) ^ n - 1) * u) by (apply Rmult_le_compat; auto using Rabs_pos).
  pose proof (Rabs_triang theta d); simpl; lra.
Qed.

Lemma perturbed_round : forall n m xs a c,
  perturbed n m xs a -> rounds u eta a c -> perturbed (S n) (S m) xs c.
Proof.
  intros n m xs a c (l & e & E & Ht & He & ->) (d & e' & Hd & He' & ->).
  exists (map (fun p => (fst p, (1 + snd p) * (1 + d) - 1)) l), (e * (1 + d) + e'); repeat split.
  - rewrite <- E, map_map; reflexivity.
  - intros x theta Hin; apply in_map_iff in Hin; destruct Hin as ([x' theta'] & Eq & Hin).
    injection Eq as _ <-; apply compound_error; eauto.
  - assert (H1 : Rabs (e * (1 + d)) <= INR m * eta * (1 + u) ^ n * (1 + u)).
    { rewrite Rabs_mult; apply Rmult_le_compat; auto using Rabs_pos.
      eapply Rle_trans; [apply Rabs_triang|]; rewrite Rabs_R1; lra. }
    assert (H2 : eta * 1 <= eta * (1 + u) ^ S n) by (apply Rmult_le_compat_l; auto using power_ge_1).
    eapply Rle_trans; [apply Rabs_triang|]; rewrite S_INR; simpl in *; lra.
  - rewrite sum_over_map; simpl.
    rewrite (sum_over_ext _ (fun p => fst p * (1 + ((1 + snd p) * (1 + d) - 1)))
                            (fun p => (1 + d) * (fst p * (1 + snd p)))) by (intros; ring).
    rewrite sum_over_scale; ring.
Qed.

(** * Errors of a tree *)

Theorem sum_tree_factors : forall t c, contracting t -> computes t c -> perturbed (depth t) (operations t) (terms t) c.
Proof.
  intros t c Ht H; induction H as [x | l r a b c _ IHl _ IHr Hc | alpha t a c _ IH Hc]; simpl in *.
  - exists [(x, 0)], 0; simpl; repeat split; [| |ring].
    + intros x' theta [Eq|[]]; injection Eq as _ <-; rewrite Rabs_R0; lra.
    + rewrite Rabs_R0; lra.
  - destruct Ht as [Hl Hr]; apply (perturbed_round _ _ _ (a + b)); [|assumption].
    apply perturbed_add.
    + apply (perturbed_mono (depth l)); [apply Nat.le_max_l | auto].
    + apply (perturbed_mono (depth r)); [apply Nat.le_max_r | auto].
  - destruct Ht as [Halpha Ht]; apply (perturbed_round _ _ _ (alpha * a)); [|assumption].
    apply perturbed_scale; auto.
Qed.

Theorem sum_tree_error : forall t c, contracting t -> computes t c ->
  Rabs (c - exact_sum t) <=
    ((1 + u) ^ depth t - 1) * magnitude t + INR (operations t) * eta * (1 + u) ^ depth t.
Proof.
  intros t c Ht H; destruct (sum_tree_factors t c Ht H) as (l & e & E & Htheta & He & ->).
  unfold exact_sum, magnitude; rewrite <- E, !sum_over_map.
  assert (Hsplit : sum_over (fun p => fst p * (1 + snd p)) l
                   = sum_over (fun p => fst p) l + sum_over (fun p => fst p * snd p) l)
    by (rewrite <- sum_over_plus; apply sum_over_ext; intros; ring).
  apply Rle_trans with (Rabs (sum_over (fun p => fst p * snd p) l + e)); [right; f_equal; lra|].
  eapply Rle_trans; [apply Rabs_triang|]; apply Rplus_le_compat; [|assumption].
  eapply Rle_trans; [apply sum_over_abs|]; rewrite <- sum_over_scale; apply sum_over_le.
  intros [x theta] Hin; simpl; rewrite Rabs_mult, Rmult_comm.
  apply Rmult_le_compat_r; [apply Rabs_pos | eauto].
Qed.

End Model.

(** * Rounding to nearest *)

Section Nearest.

Variable f : format.

Fixpoint evaluate (t : tree) : R :=
  match t with
  | Leaf x => x
  | Add l r => nearest f (evaluate l + evaluate r)
  | Rescale alpha t => nearest f (alpha * evaluate t)
  end.

Fixpoint representable_leaves (t : tree) : Prop :=
  match t with
  | Leaf x => representable f x
  | Add l r => representable_leaves l /\ representable_leaves r
  | Rescale _ t => representable_leaves t
  end.

Let half_least := / 2 * bpow radix2 (least_exponent f).

Lemma unit_pos : 0 < unit_of f.
Proof. apply bpow_gt_0. Qed.

Lemma unit_quotient : unit_of f / (1 + unit_of f) <= unit_of f.
Proof. rewrite <- unit_u_ro; apply u_rod1pu_ro_le_u_ro. Qed.

Lemma evaluate_representable : forall t, representable_leaves t -> representable f (evaluate t).
Proof. destruct t; simpl; auto using nearest_representable. Qed.

Lemma evaluate_computes : forall t eta, representable_leaves t -> 0 <= eta ->
  without_rescale t \/ half_least <= eta -> computes (unit_of f) eta t (evaluate t).
Proof.
  intros t eta Ht Heta; induction t as [x | l IHl r IHr | alpha t IH]; simpl in *; intro H.
  - constructor.
  - destruct Ht as [Hl Hr]; econstructor; [apply IHl; tauto | apply IHr; tauto |].
    eapply rounds_weaken; [apply addition_error | apply unit_quotient | assumption];
      apply evaluate_representable; assumption.
  - destruct H as [[]|H]; econstructor; [apply IH; tauto|].
    eapply rounds_weaken; [apply conversion_error | apply unit_quotient | assumption].
Qed.

Lemma without_rescale_contracting : forall t, without_rescale t -> contracting t.
Proof. induction t; simpl; tauto. Qed.

Theorem nearest_sum_error : forall t, without_rescale t -> representable_leaves t ->
  Rabs (evaluate t - exact_sum t) <= ((1 + unit_of f) ^ depth t - 1) * magnitude t /\
  (depth t <= length (terms t) - 1)%nat.
Proof.
  intros t Hw Hr; split.
  - pose proof unit_pos.
    pose proof (sum_tree_error (unit_of f) 0 ltac:(lra) ltac:(lra) t (evaluate t)
                  (without_rescale_contracting t Hw) (evaluate_computes t 0 Hr ltac:(lra) (or_introl Hw))); lra.
  - clear Hr; assert (1 <= length (terms t) /\ depth t <= length (terms t) - 1)%nat; [|tauto].
    induction t as [x | l IHl r IHr | alpha t IH]; simpl in *; [lia| |contradiction].
    destruct Hw as [Hl Hr]; specialize (IHl Hl); specialize (IHr Hr); rewrite app_length; lia.
Qed.

Theorem nearest_rescaled_sum_error : forall t, contracting t -> representable_leaves t ->
  Rabs (evaluate t - exact_sum t) <=
    ((1 + unit_of f) ^ depth t - 1) * magnitude t + INR (operations t) * half_least * (1 + unit_of f) ^ depth t.
Proof.
  intros t Hc Hr; pose proof unit_pos.
  assert (0 <= half_least) by (pose proof (bpow_gt_0 radix2 (least_exponent f)); unfold half_least; lra).
  apply sum_tree_error; [lra | assumption | assumption |].
  apply evaluate_computes; [assumption | assumption | right; lra].
Qed.

End Nearest.

(** * Serial sums *)

Definition serial (first : R) (rest : list R) : tree := fold_left (fun t x => Add t (Leaf x)) rest (Leaf first).

Lemma serial_properties : forall f rest t,
  let t' := fold_left (fun t x => Add t (Leaf x)) rest t in
  evaluate f t' = fold_left (fun acc x => nearest f (acc + x)) rest (evaluate f t) /\
  terms t' = terms t ++ rest /\ depth t' = (depth t + length rest)%nat /\
  (without_rescale t -> without_rescale t') /\
  (representable_leaves f t -> Forall (representable f) rest -> representable_leaves f t').
Proof.
  induction rest as [|x rest IH]; intro t; simpl.
  - rewrite app_nil_r, Nat.add_0_r; auto.
  - destruct (IH (Add t (Leaf x))) as (E & Et & Ed & Hw & Hr); simpl in *.
    rewrite E, Et, Ed, <- app_assoc, Nat.max_0_r; repeat split; [lia | tauto |].
    intros Ht Hf; inversion Hf; tauto.
Qed.

Theorem fp32_serial_sum_error : forall first rest, Forall (representable fp32) (first :: rest) ->
  Rabs (fold_left (fun acc x => nearest fp32 (acc + x)) rest first - sum_over (fun x => x) (first :: rest)) <=
    ((1 + bpow radix2 (-24)) ^ length rest - 1) * sum_over Rabs (first :: rest).
Proof.
  intros first rest H; inversion H as [|x l Hfirst Hrest]; subst.
  destruct (serial_properties fp32 rest (Leaf first)) as (E & Et & Ed & Hw & Hr); simpl in *.
  destruct (nearest_sum_error fp32 (serial first rest)) as [B _]; unfold serial; auto.
  unfold exact_sum, magnitude, serial in B; rewrite E, Et, Ed in B; exact B.
Qed.
