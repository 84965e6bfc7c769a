(** Online softmax equals batch softmax, in real arithmetic.

    The batch softmax of keys with scores s_j and values v_j is
      O = sum_j exp(s_j) v_j / sum_j exp(s_j),   L = ln sum_j exp(s_j).
    An algorithm of the FlashAttention family holds a state (reference m, denominator l, numerator o), with
      l = sum_j exp(s_j - m),   o = sum_j exp(s_j - m) v_j
    over the keys seen so far, adds tiles of keys, and may merge two states. The reference is the running maximum in
    practice; nothing below uses that: a stale, lazy or constant reference gives the same O and L.

    One value v_j stands for one channel of the output. A masked key is one with score None (minus infinity); the batch
    softmax does not contain it. A sink is a key with value 0; a dropout factor z_j belongs to the value, as z_j v_j.

    Sources: Milakov and Gimelshein, arXiv 1805.02867, algorithm 3; Rabe and Staats, 2112.05682; Dao, 2307.08691,
    algorithm 1; Dao et al., "Flash-Decoding", 2023.

    Main Results
      - online_softmax_output, online_softmax_log_sum: for any schedule of tiles and merges and any references, O and L
        are the batch softmax's over the visible keys.
      - schedule_independent: two schedules of the same keys in any order agree.
      - combine_output, combine_log_sum: split-KV combination by L: O = sum_s exp(L_s - L) O_s, L = ln sum_s exp(L_s).
    Dependencies: sums.
    Structure: batch softmax; states and their invariant; schedules; combination of parts by L. *)
From Coq Require Import Reals List Lra Permutation.
From Flashproof Require Import sums.
Import ListNotations.
Open Scope R_scope.

(** * Batch softmax *)

Notation key := (R * R)%type (only parsing).                   (* score, value *)
Notation maskable_key := (option R * R)%type (only parsing).   (* None: masked *)

Fixpoint visible (keys : list maskable_key) : list key :=
  match keys with
  | [] => []
  | (Some s, v) :: rest => (s, v) :: visible rest
  | (None, _) :: rest => visible rest
  end.

Definition batch_denominator (keys : list key) : R := sum_over (fun k => exp (fst k)) keys.
Definition batch_numerator (keys : list key) : R := sum_over (fun k => exp (fst k) * snd k) keys.
Definition batch_output (keys : list key) : R := batch_numerator keys / batch_denominator keys.
Definition batch_log_sum (keys : list key) : R := ln (batch_denominator keys).

Lemma visible_app : forall a b, visible (a ++ b) = visible a ++ visible b.
Proof. induction a as [|[[s|] v] a IH]; intros; simpl; rewrite ?IH; reflexivity. Qed.

Lemma visible_permutation : forall a b, Permutation a b -> Permutation (visible a) (visible b).
Proof.
  induction 1 as [|[[s|] v] a b _ IH|[[s|] v] [[s'|] v'] a|a b c _ IH _ IH']; simpl;
    eauto using Permutation_trans, perm_skip, perm_swap, Permutation_refl.
Qed.

Lemma batch_denominator_pos : forall keys, keys <> [] -> 0 < batch_denominator keys.
Proof. intros; apply sum_over_pos; [intro; apply exp_pos | assumption]. Qed.

(** * States and their invariant *)

Record state := State { reference : R; denominator : R; numerator : R }.

(** exp(s - m), and 0 for a masked key *)
Definition weight (m : R) (k : maskable_key) : R :=
  match fst k with Some s => exp (s - m) | None => 0 end.

Definition empty_state (m : R) : state := State m 0 0.

(** Adds a tile and moves to a new reference. *)
Definition add_tile (m : R) (tile : list maskable_key) (st : state) : state :=
  let rescale := exp (reference st - m) in
  State m (rescale * denominator st + sum_over (weight m) tile)
          (rescale * numerator st + sum_over (fun k => weight m k * snd k) tile).

(** Merges two states at a new reference. *)
Definition merge (m : R) (a b : state) : state :=
  let rescale st := exp (reference st - m) in
  State m (rescale a * denominator a + rescale b * denominator b)
          (rescale a * numerator a + rescale b * numerator b).

Definition represents (st : state) (keys : list key) : Prop :=
  denominator st = exp (- reference st) * batch_denominator keys /\
  numerator st = exp (- reference st) * batch_numerator keys.

Lemma rescale_reference : forall m m' x, exp (m - m') * (exp (- m) * x) = exp (- m') * x.
Proof. intros; rewrite <- Rmult_assoc, <- exp_plus; do 2 f_equal; ring. Qed.

Lemma tile_denominator : forall m tile,
  sum_over (weight m) tile = exp (- m) * batch_denominator (visible tile).
Proof.
  unfold batch_denominator; induction tile as [|[[s|] v] tile IH]; simpl; [ring| |]; rewrite IH.
  - unfold weight; simpl. replace (s - m) with (- m + s) by ring. rewrite exp_plus; ring.
  - unfold weight; simpl; ring.
Qed.

Lemma tile_numerator : forall m tile,
  sum_over (fun k => weight m k * snd k) tile = exp (- m) * batch_numerator (visible tile).
Proof.
  unfold batch_numerator; induction tile as [|[[s|] v] tile IH]; simpl; [ring| |]; rewrite IH.
  - unfold weight; simpl. replace (s - m) with (- m + s) by ring. rewrite exp_plus; ring.
  - unfold weight; simpl; ring.
Qed.

Lemma represents_empty : forall m, represents (empty_state m) [].
Proof. intro; split; unfold batch_denominator, batch_numerator; simpl; ring. Qed.

Lemma represents_add_tile : forall m tile st keys,
  represents st keys -> represents (add_tile m tile st) (keys ++ visible tile).
Proof.
  intros m tile st keys [Hl Ho]; split; simpl.
  - rewrite Hl, rescale_reference, tile_denominator; unfold batch_denominator; rewrite sum_over_app; ring.
  - rewrite Ho, rescale_reference, tile_numerator; unfold batch_numerator; rewrite sum_over_app; ring.
Qed.

Lemma represents_merge : forall m a b keys_a keys_b,
  represents a keys_a -> represents b keys_b -> represents (merge m a b) (keys_a ++ keys_b).
Proof.
  intros m a b ka kb [Hl Ho] [Hl' Ho']; split; simpl.
  - rewrite Hl, Hl', !rescale_reference; unfold batch_denominator; rewrite sum_over_app; ring.
  - rewrite Ho, Ho', !rescale_reference; unfold batch_numerator; rewrite sum_over_app; ring.
Qed.

Lemma represents_output : forall st keys,
  represents st keys -> keys <> [] -> numerator st / denominator st = batch_output keys.
Proof.
  intros st keys [Hl Ho] Hne; rewrite Hl, Ho; unfold batch_output.
  pose proof (batch_denominator_pos _ Hne); pose proof (exp_pos (- reference st)).
  field; split; apply Rgt_not_eq; assumption.
Qed.

Lemma represents_log_sum : forall st keys,
  represents st keys -> keys <> [] -> reference st + ln (denominator st) = batch_log_sum keys.
Proof.
  intros st keys [Hl _] Hne; rewrite Hl, ln_mult, ln_exp by auto using exp_pos, batch_denominator_pos.
  unfold batch_log_sum; ring.
Qed.

(** * Schedules *)

(** Online softmax is a chain of Tiles; split KV is Merges of such chains, in any nesting. *)
Inductive schedule :=
  | Start (m : R)
  | Tile (m : R) (tile : list maskable_key) (before : schedule)
  | Merge (m : R) (a b : schedule).

Fixpoint run (plan : schedule) : state :=
  match plan with
  | Start m => empty_state m
  | Tile m tile before => add_tile m tile (run before)
  | Merge m a b => merge m (run a) (run b)
  end.

Fixpoint keys_of (plan : schedule) : list maskable_key :=
  match plan with
  | Start _ => []
  | Tile _ tile before => keys_of before ++ tile
  | Merge _ a b => keys_of a ++ keys_of b
  end.

Lemma run_represents : forall plan, represents (run plan) (visible (keys_of plan)).
Proof.
  induction plan; simpl; rewrite ?visible_app;
    auto using represents_empty, represents_add_tile, represents_merge.
Qed.

Theorem online_softmax_output : forall plan,
  visible (keys_of plan) <> [] ->
  numerator (run plan) / denominator (run plan) = batch_output (visible (keys_of plan)).
Proof. intros; apply represents_output; [apply run_represents | assumption]. Qed.

Theorem online_softmax_log_sum : forall plan,
  visible (keys_of plan) <> [] ->
  reference (run plan) + ln (denominator (run plan)) = batch_log_sum (visible (keys_of plan)).
Proof. intros; apply represents_log_sum; [apply run_represents | assumption]. Qed.

(** The same keys in another order, other tiles, other references: the same O and L. *)
Corollary schedule_independent : forall a b,
  Permutation (keys_of a) (keys_of b) -> visible (keys_of a) <> [] ->
  numerator (run a) / denominator (run a) = numerator (run b) / denominator (run b) /\
  reference (run a) + ln (denominator (run a)) = reference (run b) + ln (denominator (run b)).
Proof.
  intros a b H Ha. apply visible_permutation in H.
  assert (Hb : visible (keys_of b) <> [])
    by (intro E; rewrite E in H; apply Permutation_sym, Permutation_nil in H; contradiction).
  rewrite !online_softmax_output, !online_softmax_log_sum by assumption.
  unfold batch_output, batch_log_sum, batch_numerator, batch_denominator.
  split; rewrite !(sum_over_permutation _ _ _ _ H); reflexivity.
Qed.

(** * Combination of parts by L *)

(** FlashDecoding keeps O_s and L_s of each part. A part without visible keys has L_s = - infinity, weight 0: it is
    absent. *)

Lemma exp_batch_log_sum : forall keys, keys <> [] -> exp (batch_log_sum keys) = batch_denominator keys.
Proof. intros; apply exp_ln, batch_denominator_pos; assumption. Qed.

Lemma concat_ne : forall A (parts : list (list A)),
  parts <> [] -> Forall (fun p => p <> []) parts -> concat parts <> [].
Proof. intros A [|[|x p] parts] H F; [contradiction | inversion F; contradiction | discriminate]. Qed.

Lemma parts_denominator : forall parts, Forall (fun p => p <> []) parts ->
  sum_over (fun part => exp (batch_log_sum part)) parts = batch_denominator (concat parts).
Proof.
  unfold batch_denominator at 1; induction 1; simpl; [reflexivity|].
  rewrite exp_batch_log_sum, IHForall, sum_over_app by assumption; reflexivity.
Qed.

Theorem combine_log_sum : forall parts,
  Forall (fun p => p <> []) parts ->
  batch_log_sum (concat parts) = ln (sum_over (fun part => exp (batch_log_sum part)) parts).
Proof. intros; rewrite parts_denominator by assumption; reflexivity. Qed.

Theorem combine_output : forall parts,
  parts <> [] -> Forall (fun p => p <> []) parts ->
  batch_output (concat parts) =
    sum_over (fun part => exp (batch_log_sum part - batch_log_sum (concat parts)) * batch_output part) parts.
Proof.
  intros parts Hp F.
  pose proof (concat_ne _ _ Hp F) as Hc; pose proof (batch_denominator_pos _ Hc) as Hpos.
  set (total := concat parts) in *.
  transitivity (/ batch_denominator total * sum_over batch_numerator parts).
  - unfold batch_output, Rdiv; rewrite Rmult_comm; f_equal; unfold total, batch_numerator; clear.
    induction parts; simpl; [reflexivity | rewrite sum_over_app, IHparts; reflexivity].
  - rewrite <- sum_over_scale; apply sum_over_ext; intros part Hin.
    rewrite Forall_forall in F; pose proof (F _ Hin) as Hne.
    unfold Rminus; rewrite exp_plus, exp_Ropp, !exp_batch_log_sum by assumption.
    pose proof (batch_denominator_pos _ Hne); unfold batch_output; field; split; lra.
Qed.
