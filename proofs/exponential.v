(** Inequalities of exp that turn errors of logarithms into errors of weights and back.

    Main Results
      - growth_bound: e^x - 1 <= x (1 + 0.502 x) for 0 <= x <= 0.01.
      - decay_bound: 1 - e^{-x} <= min(x, 1).
      - relative_to_log_error: a relative error eps is a log-error of at most eps / (1 - eps).
    Dependencies: Coquelicot, for derivatives.
    Structure: growth and decay; relative errors. *)
From Coq Require Import Reals Lra.
From Coquelicot Require Import Coquelicot.
Open Scope R_scope.

(** * Growth and decay *)

Lemma nonneg_by_derivative : forall (f f' : R -> R) h,
  (forall x, is_derive f x (f' x)) -> f 0 = 0 -> (forall x, 0 <= x <= h -> 0 <= f' x) ->
  forall x, 0 <= x <= h -> 0 <= f x.
Proof.
  intros f f' h Hd H0 Hf' x [Hx0 Hxh]; destruct Hx0 as [Hx0| <-]; [|rewrite H0; lra].
  destruct (MVT_cor2 f f' 0 x Hx0) as (c & Hc & Hc0 & Hcx); [intros; apply is_derive_Reals, Hd|].
  assert (0 <= f' c * (x - 0)) by (apply Rmult_le_pos; [apply Hf'; lra | lra]); lra.
Qed.

(** The series cut after x^2 / 2; x^3 / 5 covers the rest. *)
Theorem growth_bound : forall x, 0 <= x <= 1 / 100 -> exp x - 1 <= x * (1 + 502 / 1000 * x).
Proof.
  assert (Hthird : forall x, 0 <= x <= 1 / 100 -> 0 <= 6 / 5 - exp x).
  { intros x Hx; pose proof (exp_ineq1_le (- x)); pose proof (exp_pos x); rewrite exp_Ropp in *.
    assert (exp x * (1 - x) <= 1)
      by (apply Rle_trans with (exp x * / exp x); [apply Rmult_le_compat_l | rewrite Rinv_r]; lra).
    assert (exp x * (99 / 100) <= exp x * (1 - x)) by (apply Rmult_le_compat_l; lra); lra. }
  assert (Hsecond : forall x, 0 <= x <= 1 / 100 -> 0 <= 1 + 6 / 5 * x - exp x).
  { apply nonneg_by_derivative with (f' := fun x => 6 / 5 - exp x);
      [intro; auto_derive; [trivial | field] | rewrite exp_0; field | exact Hthird]. }
  assert (Hfirst : forall x, 0 <= x <= 1 / 100 -> 0 <= 1 + x + 3 / 5 * x ^ 2 - exp x).
  { apply nonneg_by_derivative with (f' := fun x => 1 + 6 / 5 * x - exp x);
      [intro; auto_derive; [trivial | field] | rewrite exp_0; field | exact Hsecond]. }
  assert (Hexp : forall x, 0 <= x <= 1 / 100 -> 0 <= 1 + x + 1 / 2 * x ^ 2 + 1 / 5 * x ^ 3 - exp x).
  { apply nonneg_by_derivative with (f' := fun x => 1 + x + 3 / 5 * x ^ 2 - exp x);
      [intro; auto_derive; [trivial | field] | rewrite exp_0; field | exact Hfirst]. }
  intros x Hx; specialize (Hexp x Hx).
  assert (0 <= x ^ 2 * (1 / 100 - x)) by (apply Rmult_le_pos; [apply pow2_ge_0 | lra]); lra.
Qed.

Theorem decay_bound : forall x, 1 - exp (- x) <= Rmin x 1.
Proof.
  intro x; pose proof (exp_ineq1_le (- x)); pose proof (exp_pos (- x)).
  unfold Rmin; destruct (Rle_dec x 1); lra.
Qed.

(** * Relative errors *)

Theorem relative_to_log_error : forall eps delta,
  Rabs delta <= eps -> eps < 1 -> exists e, 1 + delta = exp e /\ Rabs e <= eps / (1 - eps).
Proof.
  intros eps delta H Heps.
  pose proof (Rle_abs delta); pose proof (Rle_abs (- delta)); rewrite Rabs_Ropp in *.
  exists (ln (1 + delta)); split; [rewrite exp_ln; lra|].
  (* z + 1 <= exp z at z = ln(1 + delta) and at its negative *)
  pose proof (exp_ineq1_le (ln (1 + delta))) as Hup; rewrite exp_ln in Hup by lra.
  pose proof (exp_ineq1_le (- ln (1 + delta))) as Hdown; rewrite exp_Ropp, exp_ln in Hdown by lra.
  assert (Hinv : / (1 + delta) <= / (1 - eps)) by (apply Rinv_le_contravar; lra).
  assert (Heq : eps / (1 - eps) = / (1 - eps) - 1) by (field; lra).
  assert (Hle : eps <= eps / (1 - eps))
    by (rewrite <- (Rmult_1_r eps) at 1; unfold Rdiv; apply Rmult_le_compat_l; [lra|];
        rewrite <- Rinv_1 at 1; apply Rinv_le_contravar; lra).
  apply Rabs_le; lra.
Qed.
