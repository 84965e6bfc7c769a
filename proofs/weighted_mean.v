(** What errors of its weights and sums do to a weighted mean: the heart of the forward bound.

    Exact: weights p_j >= 0 with sum 1, O = sum_j p_j v_j. Computed:
      O_hat = (sum_j p_j e^{k_j} (1 + x_j) v_j + E) / D,   D = sum_j (p_j e^{k_j} + f_j) (1 + y_j)
    with log-errors k_j shared by numerator and denominator (scores, exp, rescale), x_j of the numerator alone (rounding
    of P), y_j of the denominator alone (row sum), f_j what underflow takes from a weight in the denominator, and E
    (accumulation of P V, underflow). A sink is a term with v = 0; a dropout factor z_j belongs to the value, as z_j
    v_j.

    Shared errors multiply v_j - O, not v_j: an error common to all keys cancels. Nothing is cut at first order.

    Main Results
      - weighted_mean_identity: O_hat - O exactly.
      - weighted_mean_error: |O_hat - O| from bounds kappa_j, a_j, b_j on |k_j|, |x_j|, |y_j|.
      - denominator_least, denominator_most, log_denominator_error: where D and ln D lie.
      - finished_output_error: one more rounding, of the output.
    Dependencies: sums.
    Structure: the computed mean; identity; error bound; range of the denominator; output. *)
From Coq Require Import Reals List Lra.
From Flashproof Require Import sums.
Open Scope R_scope.

(** * The computed mean *)

Record term := Term { p : R; v : R; k : R; x : R; y : R; f : R }.

Definition total (l : list term) : R := sum_over p l.
Definition mean (l : list term) : R := sum_over (fun t => p t * v t) l.
Definition computed_numerator (l : list term) (E : R) : R :=
  sum_over (fun t => p t * exp (k t) * (1 + x t) * v t) l + E.
Definition computed_denominator (l : list term) : R :=
  sum_over (fun t => (p t * exp (k t) + f t) * (1 + y t)) l.
Definition underflow (l : list term) : R := sum_over (fun t => f t * (1 + y t)) l.

(** * Identity *)

(** sum_j p_j (v_j - O) = 0 turns e^{k_j} v_j into (e^{k_j} - 1)(v_j - O). *)
Lemma numerator_identity : forall l E, total l = 1 ->
  computed_numerator l E - mean l * computed_denominator l =
  sum_over (fun t => p t * ((exp (k t) - 1) * (v t - mean l) + exp (k t) * (x t * v t - y t * mean l))) l
    + E - mean l * underflow l.
Proof.
  intros l E Htotal.
  assert (Hzero : forall c, sum_over (fun t => p t * (v t - c)) l = mean l - c * total l)
    by (intro c; unfold mean, total; rewrite <- sum_over_scale, <- sum_over_minus;
        apply sum_over_ext; intros; ring).
  specialize (Hzero (mean l)); rewrite Htotal in Hzero.
  set (c := mean l) in *. unfold computed_numerator, computed_denominator, underflow.
  rewrite <- !sum_over_scale.
  transitivity (sum_over (fun t => p t * exp (k t) * (1 + x t) * v t) l
                - sum_over (fun t => c * ((p t * exp (k t) + f t) * (1 + y t))) l
                - sum_over (fun t => p t * (v t - c)) l + E); [lra|].
  transitivity (sum_over (fun t => p t * ((exp (k t) - 1) * (v t - c) + exp (k t) * (x t * v t - y t * c))) l
                - sum_over (fun t => c * (f t * (1 + y t))) l + E); [|lra].
  f_equal; rewrite <- !sum_over_minus; apply sum_over_ext; intros; ring.
Qed.

Theorem weighted_mean_identity : forall l E, total l = 1 -> computed_denominator l <> 0 ->
  computed_numerator l E / computed_denominator l - mean l =
  (sum_over (fun t => p t * ((exp (k t) - 1) * (v t - mean l) + exp (k t) * (x t * v t - y t * mean l))) l
     + E - mean l * underflow l) / computed_denominator l.
Proof. intros; rewrite <- numerator_identity by assumption; field; assumption. Qed.

(** * Error bound *)

Lemma exp_minus_1_abs : forall z bound, Rabs z <= bound -> Rabs (exp z - 1) <= exp bound - 1.
Proof.
  intros z bound H.
  assert (Hz : exp z <= exp bound)
    by (destruct (Rle_lt_or_eq_dec z bound) as [Hlt| ->]; [pose proof (Rle_abs z); lra
        | apply Rlt_le, exp_increasing, Hlt | lra]).
  apply Rabs_le; split; [|lra].
  pose proof (exp_ineq1_le z); pose proof (exp_ineq1_le bound).
  pose proof (Rle_abs (- z)); rewrite Rabs_Ropp in *; lra.
Qed.

Lemma exp_le_bound : forall z bound, Rabs z <= bound -> exp z <= exp bound.
Proof.
  intros z bound H; pose proof (exp_minus_1_abs _ _ H) as H'; pose proof (Rle_abs (exp z - 1)); lra.
Qed.

Section Error.

(** Upper bounds on |k_j|, |x_j|, |y_j|, which may differ from key to key. *)
Variables kappa a b : term -> R.

Definition bounded (t : term) : Prop :=
  0 <= p t /\ Rabs (k t) <= kappa t /\ Rabs (x t) <= a t /\ Rabs (y t) <= b t.

Lemma term_error : forall t O, bounded t ->
  Rabs (p t * ((exp (k t) - 1) * (v t - O) + exp (k t) * (x t * v t - y t * O))) <=
  p t * (exp (kappa t) - 1) * Rabs (v t - O) + p t * exp (kappa t) * (a t * Rabs (v t) + b t * Rabs O).
Proof.
  intros t O (Hp & Hk & Hx & Hy).
  rewrite Rabs_mult, (Rabs_pos_eq (p t)), !Rmult_assoc, <- Rmult_plus_distr_l by assumption.
  apply Rmult_le_compat_l; [assumption|].
  eapply Rle_trans; [apply Rabs_triang|]; rewrite !Rabs_mult, (Rabs_pos_eq (exp (k t))) by apply Rlt_le, exp_pos.
  apply Rplus_le_compat.
  - apply Rmult_le_compat_r; [apply Rabs_pos | apply exp_minus_1_abs; assumption].
  - apply Rmult_le_compat; [apply Rlt_le, exp_pos | apply Rabs_pos | apply exp_le_bound; assumption |].
    unfold Rminus; eapply Rle_trans; [apply Rabs_triang|]; rewrite Rabs_Ropp, !Rabs_mult.
    apply Rplus_le_compat; apply Rmult_le_compat_r; auto using Rabs_pos.
Qed.

Theorem weighted_mean_error : forall l E least,
  total l = 1 -> (forall t, In t l -> bounded t) -> 0 < least <= computed_denominator l ->
  Rabs (computed_numerator l E / computed_denominator l - mean l) <=
  (sum_over (fun t => p t * (exp (kappa t) - 1) * Rabs (v t - mean l)) l
   + sum_over (fun t => p t * exp (kappa t) * (a t * Rabs (v t) + b t * Rabs (mean l))) l
   + Rabs E + Rabs (mean l) * Rabs (underflow l)) / least.
Proof.
  intros l E least Htotal Hl [Hleast HD].
  rewrite weighted_mean_identity by (assumption || lra).
  unfold Rdiv; rewrite Rabs_mult, Rabs_inv, (Rabs_pos_eq (computed_denominator l)) by lra.
  apply Rmult_le_compat; [apply Rabs_pos | apply Rlt_le, Rinv_0_lt_compat; lra | | apply Rinv_le_contravar; lra].
  unfold Rminus at 1; eapply Rle_trans; [apply Rabs_triang|].
  rewrite Rabs_Ropp, Rabs_mult; apply Rplus_le_compat_r.
  eapply Rle_trans; [apply Rabs_triang|]; apply Rplus_le_compat_r.
  rewrite <- sum_over_plus; eapply Rle_trans; [apply sum_over_abs|].
  apply sum_over_le; intros t Ht; apply term_error, Hl, Ht.
Qed.

(** * Range of the denominator *)

Lemma weight_least : forall t, bounded t -> p t - p t * Rmin (kappa t) 1 <= p t * exp (k t).
Proof.
  intros t (Hp & Hk & _).
  replace (p t - p t * Rmin (kappa t) 1) with (p t * (1 - Rmin (kappa t) 1)) by ring.
  apply Rmult_le_compat_l; [assumption|].
  pose proof (exp_ineq1_le (k t)); pose proof (exp_pos (k t)).
  pose proof (Rle_abs (- k t)); rewrite Rabs_Ropp in *.
  unfold Rmin; destruct (Rle_dec (kappa t) 1); lra.
Qed.

(** Underflow makes a weight smaller but not negative; `lost` is what it takes from all of them. *)
Theorem denominator_least : forall l largest_b lost,
  total l = 1 -> (forall t, In t l -> bounded t /\ b t <= largest_b /\ 0 <= p t * exp (k t) + f t) ->
  largest_b <= 1 -> - lost <= sum_over f l ->
  (1 - sum_over (fun t => p t * Rmin (kappa t) 1) l - lost) * (1 - largest_b) <= computed_denominator l.
Proof.
  intros l B lost Htotal Hl HB Hlost.
  apply Rle_trans with (sum_over (fun t => (p t * exp (k t) + f t) * (1 - B)) l).
  - rewrite (sum_over_ext _ (fun t => (p t * exp (k t) + f t) * (1 - B))
                             (fun t => (1 - B) * (p t * exp (k t) + f t))) by (intros; apply Rmult_comm).
    rewrite sum_over_scale, Rmult_comm, sum_over_plus; apply Rmult_le_compat_l; [lra|].
    apply Rle_trans with (sum_over (fun t => p t - p t * Rmin (kappa t) 1) l + sum_over f l).
    + rewrite sum_over_minus; unfold total in Htotal; lra.
    + apply Rplus_le_compat_r, sum_over_le; intros t Ht; apply weight_least, Hl, Ht.
  - apply sum_over_le; intros t Ht; destruct (Hl t Ht) as ((_ & _ & _ & Hy) & Hb & Hpos).
    apply Rmult_le_compat_l; [assumption|].
    pose proof (Rle_abs (- y t)); rewrite Rabs_Ropp in *; lra.
Qed.

Theorem denominator_most : forall l largest_b gained,
  total l = 1 -> (forall t, In t l -> bounded t /\ b t <= largest_b /\ 0 <= p t * exp (k t) + f t) ->
  0 <= largest_b -> sum_over f l <= gained ->
  computed_denominator l <= (1 + sum_over (fun t => p t * (exp (kappa t) - 1)) l + gained) * (1 + largest_b).
Proof.
  intros l B gained Htotal Hl HB Hgained.
  apply Rle_trans with (sum_over (fun t => (p t * exp (k t) + f t) * (1 + B)) l).
  - apply sum_over_le; intros t Ht; destruct (Hl t Ht) as ((_ & _ & _ & Hy) & Hb & Hpos).
    apply Rmult_le_compat_l; [assumption|]. pose proof (Rle_abs (y t)); lra.
  - rewrite (sum_over_ext _ (fun t => (p t * exp (k t) + f t) * (1 + B))
                             (fun t => (1 + B) * (p t * exp (k t) + f t))) by (intros; apply Rmult_comm).
    rewrite sum_over_scale, (Rmult_comm _ (1 + B)), sum_over_plus; apply Rmult_le_compat_l; [lra|].
    apply Rplus_le_compat; [|assumption].
    replace 1 with (sum_over p l) at 1 by exact Htotal.
    rewrite <- sum_over_plus; apply sum_over_le; intros t Ht.
    destruct (Hl t Ht) as ((Hp & Hk & _) & _).
    replace (p t + p t * (exp (kappa t) - 1)) with (p t * exp (kappa t)) by ring.
    apply Rmult_le_compat_l, exp_le_bound; assumption.
Qed.

End Error.

(** L = M + ln l errs by |ln D| through the weights. *)
Theorem log_denominator_error : forall D least most,
  0 < least -> least <= D <= most -> Rabs (ln D) <= Rmax (ln most) (- ln least).
Proof.
  intros D least most Hleast [HD HD'].
  assert (Hln : forall u w, 0 < u -> u <= w -> ln u <= ln w)
    by (intros u w Hu [Hlt| ->]; [apply Rlt_le, ln_increasing; assumption | lra]).
  pose proof (Hln _ _ Hleast HD); pose proof (Hln D most ltac:(lra) HD').
  pose proof (Rmax_l (ln most) (- ln least)); pose proof (Rmax_r (ln most) (- ln least)).
  apply Rabs_le; lra.
Qed.

(** * Output *)

(** The division and the rounding of the output, together (1 + r), and its subnormal term e. *)
Theorem finished_output_error : forall O O_hat B r rho e eta,
  Rabs (O_hat - O) <= B -> Rabs r <= rho -> Rabs e <= eta ->
  Rabs (O_hat * (1 + r) + e - O) <= B + rho * (Rabs O + B) + eta.
Proof.
  intros O O_hat B r rho e eta HB Hr He.
  replace (O_hat * (1 + r) + e - O) with ((O_hat - O) + r * O_hat + e) by ring.
  eapply Rle_trans; [apply Rabs_triang|]; apply Rplus_le_compat; [|assumption].
  eapply Rle_trans; [apply Rabs_triang|]; apply Rplus_le_compat; [assumption|].
  rewrite Rabs_mult; apply Rmult_le_compat; auto using Rabs_pos.
  replace O_hat with (O + (O_hat - O)) by ring; eapply Rle_trans; [apply Rabs_triang|]; lra.
Qed.
