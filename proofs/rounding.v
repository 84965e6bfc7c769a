(** Rounding to the formats in use, as relative error plus underflow.

    A format is Flocq's FLT: p significant bits and least positive number 2^e; all numbers are in range, overflow is not
    modelled. Rounding is to nearest, ties to even. Flushing replaces a result below the least normal number by zero.

    Main Results
      - conversion_error: round(x) = x (1 + d) + e with |d| <= U / (1 + U), U = 2^-p, and |e| <= half the least number.
      - scaled_conversion_error: the same where x is scaled by 2^s before and by 2^-s after: e is 2^-s times as large.
      - addition_error: a sum of two numbers of the format has no e.
      - flushed_error: with flushing, |e| is at most the least normal number.
      - bf16_error, fp16_error, e4m3_error, e5m2_error, fp32_error: the constants.
    Dependencies: Flocq.
    Structure: rounded results; formats; errors; constants. *)
From Coq Require Import Reals ZArith Lra Lia.
From Flocq Require Import Core Relative Plus_error.
Open Scope R_scope.

(** * Rounded results *)

(** `computed` is `exact` with a relative error of at most u and an absolute error of at most eta. *)
Definition rounds (u eta exact computed : R) : Prop :=
  exists d e, Rabs d <= u /\ Rabs e <= eta /\ computed = exact * (1 + d) + e.

Lemma rounds_weaken : forall u eta u' eta' exact computed,
  rounds u eta exact computed -> u <= u' -> eta <= eta' -> rounds u' eta' exact computed.
Proof. intros u eta u' eta' x r (d & e & Hd & He & E) Hu Heta; exists d, e; repeat split; lra || assumption. Qed.

(** * Formats *)

Record format := Format { precision : Z; least_exponent : Z; precision_positive : (0 < precision)%Z }.

Definition bf16 := Format 8 (-133) eq_refl.
Definition fp16 := Format 11 (-24) eq_refl.
Definition e4m3 := Format 4 (-9) eq_refl.
Definition e5m2 := Format 3 (-16) eq_refl.
Definition fp32 := Format 24 (-149) eq_refl.

#[global] Instance precision_gt_0 (f : format) : Prec_gt_0 (precision f) := precision_positive f.

Notation exponent_of f := (FLT_exp (least_exponent f) (precision f)).
Definition representable (f : format) (x : R) : Prop := generic_format radix2 (exponent_of f) x.
Definition nearest (f : format) (x : R) : R := round radix2 (exponent_of f) ZnearestE x.

(** U, the relative error's unit, and the least normal number. *)
Definition unit_of (f : format) : R := bpow radix2 (- precision f).
Definition least_normal (f : format) : R := bpow radix2 (least_exponent f + precision f - 1).

Definition flushed (f : format) (x : R) : R :=
  if Rlt_bool (Rabs (nearest f x)) (least_normal f) then 0 else nearest f x.

Lemma unit_u_ro : forall f, u_ro radix2 (precision f) = unit_of f.
Proof.
  intro f; unfold u_ro, unit_of; rewrite bpow_plus, bpow_1; simpl (IZR radix2); lra.
Qed.

Lemma nearest_representable : forall f x, representable f (nearest f x).
Proof. intros; apply generic_format_round; typeclasses eauto. Qed.

(** * Errors *)

Theorem conversion_error : forall f x,
  rounds (unit_of f / (1 + unit_of f)) (/ 2 * bpow radix2 (least_exponent f)) x (nearest f x).
Proof.
  intros f x.
  destruct (relative_error_N_FLT'_ex radix2 (least_exponent f) (precision f) (precision_positive f)
              (fun n => negb (Z.even n)) x)
    as (d & e & Hd & He & _ & E).
  rewrite unit_u_ro in Hd; exists d, e; auto.
Qed.

Theorem scaled_conversion_error : forall f s x,
  rounds (unit_of f / (1 + unit_of f)) (/ 2 * bpow radix2 (least_exponent f - s)) x
         (bpow radix2 (- s) * nearest f (bpow radix2 s * x)).
Proof.
  intros f s x; destruct (conversion_error f (bpow radix2 s * x)) as (d & e & Hd & He & E).
  pose proof (bpow_gt_0 radix2 (- s)) as Hs.
  exists d, (bpow radix2 (- s) * e); split; [assumption|split].
  - rewrite Rabs_mult, (Rabs_pos_eq (bpow radix2 (- s))) by lra.
    replace (least_exponent f - s)%Z with (- s + least_exponent f)%Z by ring.
    rewrite bpow_plus, <- Rmult_assoc, (Rmult_comm (/ 2)), Rmult_assoc.
    apply Rmult_le_compat_l; [lra | assumption].
  - rewrite E, Rmult_plus_distr_l, <- !Rmult_assoc, <- bpow_plus, Z.add_opp_diag_l; simpl (bpow _ 0); ring.
Qed.

Theorem addition_error : forall f x y, representable f x -> representable f y ->
  rounds (unit_of f / (1 + unit_of f)) 0 (x + y) (nearest f (x + y)).
Proof.
  intros f x y Hx Hy.
  destruct (FLT_plus_error_N_ex radix2 (least_exponent f) (precision f) (fun n => negb (Z.even n)) x y Hx Hy)
    as (d & Hd & E).
  rewrite unit_u_ro in Hd; exists d, 0; rewrite Rabs_R0; repeat split; [assumption | lra |].
  rewrite Rplus_0_r; exact E.
Qed.

Theorem flushed_error : forall f x,
  rounds (unit_of f / (1 + unit_of f)) (least_normal f) x (flushed f x).
Proof.
  intros f x; unfold flushed; case Rlt_bool_spec; intro H.
  - exists 0, (- x); split; [|split; [|ring]].
    + rewrite Rabs_R0, <- unit_u_ro; apply u_rod1pu_ro_pos.
    + rewrite Rabs_Ropp; apply Rnot_lt_le; intro Hx; apply (Rlt_not_le _ _ H).
      apply abs_round_ge_generic; [typeclasses eauto | typeclasses eauto | | lra].
      apply generic_format_FLT_bpow; [typeclasses eauto|]. pose proof (precision_positive f); lia.
  - eapply rounds_weaken; [apply conversion_error | lra |].
    apply Rle_trans with (bpow radix2 (least_exponent f)).
    + pose proof (bpow_gt_0 radix2 (least_exponent f)); lra.
    + apply bpow_le. pose proof (precision_positive f); lia.
Qed.

(** * Constants *)

Lemma half_power : forall e, / 2 * bpow radix2 e = bpow radix2 (e - 1).
Proof. intro e; replace (e - 1)%Z with (-1 + e)%Z by ring; rewrite bpow_plus; reflexivity. Qed.

Ltac format_constants f x :=
  pose proof (conversion_error f x) as H; rewrite half_power in H;
  eapply rounds_weaken; [exact H | unfold unit_of; simpl; lra | apply bpow_le; simpl; lia].

Theorem bf16_error : forall x, rounds (/ 257) (bpow radix2 (-134)) x (nearest bf16 x).
Proof. intro x; format_constants bf16 x. Qed.
Theorem fp16_error : forall x, rounds (/ 2049) (bpow radix2 (-25)) x (nearest fp16 x).
Proof. intro x; format_constants fp16 x. Qed.
Theorem e4m3_error : forall x, rounds (/ 17) (bpow radix2 (-10)) x (nearest e4m3 x).
Proof. intro x; format_constants e4m3 x. Qed.
Theorem e5m2_error : forall x, rounds (/ 9) (bpow radix2 (-17)) x (nearest e5m2 x).
Proof. intro x; format_constants e5m2 x. Qed.
Theorem fp32_error : forall x, rounds (/ 16777217) (bpow radix2 (-150)) x (nearest fp32 x).
Proof. intro x; format_constants fp32 x. Qed.
