(** Sums on tensor cores: align, truncate, add exactly, truncate.

    One step adds products t_1 .. t_K to an accumulator t_0 = c. All terms are truncated toward zero to multiples of
    2^(E - F), E the largest exponent, and added exactly; the result is truncated to keep + 1 significant bits. On
    Hopper (K, F, keep) = (16, 25, 23) for bf16 and fp16, (32, 13, 13) for fp8. Between steps online softmax rescales
    the accumulator with fp32 products. Underflow of the results is not modelled.

    Main Results
      - fused_step_error: a step errs by at most eps (|c| + sum |t_i|), eps = 2^-keep + (K + 1) 2^-F (1 + 2^-keep).
      - fused_chain_error: S steps and R rescales from zero err by at most ((1 + eps)^S (1 + u)^R - 1) times the sum of
        the terms' magnitudes, each times the rescales after it; whatever their order.
    Dependencies: sums, Flocq.
    Structure: truncation; one step; a chain. *)
From Coq Require Import Reals List Lra Lia ZArith.
From Flocq Require Import Core Relative.
From Flashproof Require Import sums.
Import ListNotations.
Open Scope R_scope.

Definition sum (l : list R) : R := sum_over (fun x => x) l.
Definition magnitude (l : list R) : R := sum_over Rabs l.

Lemma sum_magnitude : forall l, Rabs (sum l) <= magnitude l.
Proof. intro; apply sum_over_abs. Qed.

Lemma magnitude_nonneg : forall l, 0 <= magnitude l.
Proof. intro; apply sum_over_nonneg; intros; apply Rabs_pos. Qed.

(** * Truncation *)

(** toward zero, to a multiple of q *)
Definition truncate (q x : R) : R := IZR (Ztrunc (x / q)) * q.

Lemma Ztrunc_error : forall y, Rabs (IZR (Ztrunc y) - y) < 1.
Proof.
  intro y; unfold Ztrunc; case Rlt_bool_spec; intro H.
  - pose proof (Zceil_ub y); pose proof (Zceil_lb y). apply Rabs_lt; lra.
  - pose proof (Zfloor_ub y); pose proof (Zfloor_lb y). apply Rabs_lt; lra.
Qed.

Lemma truncate_error : forall q x, 0 < q -> Rabs (truncate q x - x) <= q.
Proof.
  intros q x Hq; unfold truncate.
  replace (_ - x) with ((IZR (Ztrunc (x / q)) - x / q) * q) by (field; lra).
  rewrite Rabs_mult, (Rabs_pos_eq q) by lra.
  pose proof (Ztrunc_error (x / q)).
  apply Rle_trans with (1 * q); [apply Rmult_le_compat_r; lra | lra].
Qed.

Lemma sum_truncate_error : forall q l, 0 < q ->
  Rabs (sum (map (truncate q) l) - sum l) <= INR (length l) * q.
Proof.
  intros q l Hq; induction l as [|x l IH]; unfold sum in *.
  - simpl; rewrite Rminus_0_r, Rabs_R0; lra.
  - change (length (x :: l)) with (S (length l)); rewrite S_INR; simpl.
    replace (_ - _) with ((truncate q x - x)
                          + (sum_over (fun x => x) (map (truncate q) l) - sum_over (fun x => x) l)) by ring.
    eapply Rle_trans; [apply Rabs_triang|]. pose proof (truncate_error q x Hq). lra.
Qed.

(** * One step *)

Section Step.

Variables F keep : Z.
Hypothesis keep_nonneg : (0 <= keep)%Z.
Notation u_F := (bpow radix2 (- F)).
Notation u_keep := (bpow radix2 (- keep)).

Definition keep_bits (x : R) : R := round radix2 (FLX_exp (keep + 1)) Ztrunc x.

Lemma keep_bits_error : forall x, Rabs (keep_bits x - x) <= u_keep * Rabs x.
Proof.
  intro x; unfold keep_bits.
  destruct (Req_dec x 0) as [->|Hx].
  { rewrite round_0 by apply valid_rnd_ZR. rewrite Rminus_0_r, Rabs_R0; lra. }
  assert (P : Prec_gt_0 (keep + 1)) by (unfold Prec_gt_0; lia).
  pose proof (relative_error_FLX radix2 (keep + 1) P Ztrunc x Hx) as H.
  replace (- (keep + 1) + 1)%Z with (- keep)%Z in H by ring. lra.
Qed.

Definition fused_step (E : Z) (c : R) (products : list R) : R :=
  keep_bits (sum (map (truncate (bpow radix2 (E - F))) (c :: products))).

(** For n terms, the accumulator included. *)
Definition step_error (n : nat) : R := u_keep + INR n * u_F * (1 + u_keep).

(** 2^E is at most the sum of the magnitudes: some term attains E with a significand of at least 1, which fails only for
    products of subnormal operands. *)
Theorem fused_step_error : forall E c products,
  bpow radix2 E <= Rabs c + magnitude products ->
  Rabs (fused_step E c products - (c + sum products)) <=
    step_error (S (length products)) * (Rabs c + magnitude products).
Proof.
  intros E c ts HE; unfold fused_step, step_error.
  set (q := bpow radix2 (E - F)).
  assert (Hq : 0 < q) by apply bpow_gt_0.
  set (s' := sum (map (truncate q) (c :: ts))); set (A := Rabs c + magnitude ts) in *.
  assert (H1 : Rabs (s' - (c + sum ts)) <= INR (S (length ts)) * q)
    by exact (sum_truncate_error q (c :: ts) Hq).
  assert (H2 : Rabs (c + sum ts) <= A)
    by (eapply Rle_trans; [apply Rabs_triang|]; pose proof (sum_magnitude ts); unfold A; lra).
  assert (Hq2 : q <= u_F * A).
  { unfold q; replace (E - F)%Z with (- F + E)%Z by ring; rewrite bpow_plus.
    apply Rmult_le_compat_l; [apply bpow_ge_0 | exact HE]. }
  assert (HN := pos_INR (S (length ts))).
  set (n := INR (S (length ts))) in *.
  assert (Huk : 0 <= u_keep) by apply bpow_ge_0.
  assert (H3 : n * q <= n * u_F * A) by (rewrite Rmult_assoc; apply Rmult_le_compat_l; assumption).
  pose proof (keep_bits_error s') as H4.
  assert (H5 : Rabs s' <= A + n * u_F * A).
  { replace s' with ((s' - (c + sum ts)) + (c + sum ts)) by ring.
    eapply Rle_trans; [apply Rabs_triang|]; lra. }
  replace (keep_bits s' - (c + sum ts)) with ((keep_bits s' - s') + (s' - (c + sum ts))) by ring.
  eapply Rle_trans; [apply Rabs_triang|].
  apply Rle_trans with (u_keep * (A + n * u_F * A) + n * u_F * A); [|lra].
  apply Rplus_le_compat; [|lra].
  eapply Rle_trans; [exact H4|]. apply Rmult_le_compat_l; assumption.
Qed.

End Step.

(** * A chain *)

Section Chain.

Variables eps u : R.
Hypothesis eps_nonneg : 0 <= eps.
Hypothesis u_nonneg : 0 <= u.

Inductive operation := Block (products : list R) | Scale (alpha : R).

(** The accumulator may go from `before` to `after`. *)
Definition performs (op : operation) (before after : R) : Prop :=
  match op with
  | Block products => Rabs (after - (before + sum products)) <= eps * (Rabs before + magnitude products)
  | Scale alpha => Rabs (after - alpha * before) <= u * Rabs (alpha * before)
  end.

Inductive runs : list operation -> R -> R -> Prop :=
  | runs_nothing c : runs [] c c
  | runs_operation op ops c c' result : performs op c c' -> runs ops c' result -> runs (op :: ops) c result.

(** The exact sum, and the sum of magnitudes, starting from X and A. *)
Fixpoint exact (ops : list operation) (X : R) : R :=
  match ops with
  | [] => X | Block products :: rest => exact rest (X + sum products) | Scale alpha :: rest => exact rest (alpha * X)
  end.
Fixpoint exact_magnitude (ops : list operation) (A : R) : R :=
  match ops with
  | [] => A
  | Block products :: rest => exact_magnitude rest (A + magnitude products)
  | Scale alpha :: rest => exact_magnitude rest (Rabs alpha * A)
  end.

Fixpoint growth (ops : list operation) : R :=
  match ops with [] => 1 | Block _ :: rest => (1 + eps) * growth rest | Scale _ :: rest => (1 + u) * growth rest end.
Fixpoint blocks (ops : list operation) : nat :=
  match ops with [] => 0 | Block _ :: rest => S (blocks rest) | Scale _ :: rest => blocks rest end.
Fixpoint scales (ops : list operation) : nat :=
  match ops with [] => 0 | Block _ :: rest => scales rest | Scale _ :: rest => S (scales rest) end.

Lemma growth_powers : forall ops, growth ops = (1 + eps) ^ blocks ops * (1 + u) ^ scales ops.
Proof. induction ops as [|[products|alpha] ops IH]; simpl; [ring | |]; rewrite IH; ring. Qed.

(** One operation multiplies g, where |c - X| <= (g - 1) A, by 1 + eps or 1 + u. *)
Lemma block_error : forall g c c' X A products,
  1 <= g -> Rabs X <= A -> Rabs (c - X) <= (g - 1) * A -> performs (Block products) c c' ->
  Rabs (c' - (X + sum products)) <= (g * (1 + eps) - 1) * (A + magnitude products).
Proof.
  intros g c c' X A ts Hg HX Hc Hop; simpl in Hop.
  pose proof (magnitude_nonneg ts) as Hts; pose proof (Rabs_pos X).
  assert (Hcc : Rabs c <= g * A).
  { replace c with ((c - X) + X) by ring. eapply Rle_trans; [apply Rabs_triang|]; lra. }
  replace (c' - (X + sum ts)) with ((c' - (c + sum ts)) + (c - X)) by ring.
  eapply Rle_trans; [apply Rabs_triang|].
  assert (eps * (Rabs c + magnitude ts) <= eps * (g * A + magnitude ts)) by (apply Rmult_le_compat_l; lra).
  assert (0 <= (g - 1) * magnitude ts) by (apply Rmult_le_pos; lra).
  assert (0 <= eps * ((g - 1) * magnitude ts)) by (apply Rmult_le_pos; assumption).
  lra.
Qed.

Lemma scale_error : forall g c c' X A alpha,
  1 <= g -> Rabs X <= A -> Rabs (c - X) <= (g - 1) * A -> performs (Scale alpha) c c' ->
  Rabs (c' - alpha * X) <= (g * (1 + u) - 1) * (Rabs alpha * A).
Proof.
  intros g c c' X A alpha Hg HX Hc Hop; simpl in Hop.
  pose proof (Rabs_pos alpha) as Ha.
  assert (Hcc : Rabs c <= g * A).
  { replace c with ((c - X) + X) by ring. eapply Rle_trans; [apply Rabs_triang|]; lra. }
  replace (c' - alpha * X) with ((c' - alpha * c) + alpha * (c - X)) by ring.
  eapply Rle_trans; [apply Rabs_triang|]; rewrite Rabs_mult in *.
  assert (Rabs alpha * Rabs c <= Rabs alpha * (g * A)) by (apply Rmult_le_compat_l; assumption).
  assert (u * (Rabs alpha * Rabs c) <= u * (Rabs alpha * (g * A))) by (apply Rmult_le_compat_l; assumption).
  assert (Rabs alpha * Rabs (c - X) <= Rabs alpha * ((g - 1) * A)) by (apply Rmult_le_compat_l; assumption).
  lra.
Qed.

Lemma runs_error : forall ops c result, runs ops c result -> forall g X A,
  1 <= g -> Rabs X <= A -> Rabs (c - X) <= (g - 1) * A ->
  Rabs (result - exact ops X) <= (g * growth ops - 1) * exact_magnitude ops A.
Proof.
  induction 1 as [c | [products|alpha] ops c c' result Hop _ IH]; intros g X A Hg HX Hc; simpl.
  - rewrite Rmult_1_r; assumption.
  - rewrite <- Rmult_assoc; apply IH.
    + assert (0 <= g * eps) by (apply Rmult_le_pos; lra); lra.
    + eapply Rle_trans; [apply Rabs_triang|]. pose proof (sum_magnitude products); lra.
    + apply block_error with (c := c); assumption.
  - rewrite <- Rmult_assoc; apply IH.
    + assert (0 <= g * u) by (apply Rmult_le_pos; lra); lra.
    + rewrite Rabs_mult; apply Rmult_le_compat_l; [apply Rabs_pos | assumption].
    + apply scale_error with (c := c); assumption.
Qed.

Theorem fused_chain_error : forall ops result, runs ops 0 result ->
  Rabs (result - exact ops 0) <=
    ((1 + eps) ^ blocks ops * (1 + u) ^ scales ops - 1) * exact_magnitude ops 0.
Proof.
  intros ops result H; rewrite <- growth_powers, <- (Rmult_1_l (growth ops)).
  apply runs_error with (c := 0); [assumption | lra | rewrite Rabs_R0; lra |].
  rewrite Rminus_0_r, Rabs_R0; lra.
Qed.

End Chain.
