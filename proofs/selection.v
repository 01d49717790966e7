(* Keys that are secrets: the worst case is a maximum over cases, not a sum.

   IN PLAIN WORDS.  A table x has one unit more than x'.  Some keys of this unit have other units, too
   (shared keys): what is shown of them is a pair X of noisy outputs.  The other keys of the unit are
   its own: each is published with a probability of at most d under x, and never under x'.

   Theorem own_keys:     with j own keys beside a pair X, delta(eps) is at most
                         A + (1 - A) delta_X(eps) with A = 1 - (1 - d)^j, and the delta of the other
                         direction at most that of X at eps + j ln(1 - d).
   Theorem maximum:      if these two numbers are at most Delta for each number j = 0, ..., g of own
                         keys and each number i = 0, ..., g - j of shared ones, then the mechanism is
                         (eps, Delta)-DP for all tables of which one has one unit more, both ways.
   Theorem one_key:      for one key per unit: delta(eps) is at most the larger of d and the
                         noise's delta; their sum is not needed.
   Theorem laplace:      if a shared key costs eps / g with delta 0, and 1 - d >= e^(-eps / g), then
                         1 - (1 - d)^g is enough.
   Theorem rule_for_keys: a rule that publishes a key of n units with the probability p_n is
                         (eps, delta)-DP for a key, if p_n <= p_(n+1) and both conditions of
                         optimal_rule hold. *)

From Coq Require Import Reals Lra Lia List Bool.
From Tightbudget Require Import sums order.
Import ListNotations.
Open Scope R_scope.

(* A key of one's own that is published with probability d: published, or not. *)
Definition own (d : R) : pair := [(d, 0); (1 - d, 1)].

(* The pair X with own keys beside it, each with a probability of its own. *)
Fixpoint with_own (ds : list R) (X : pair) : pair :=
  match ds with
  | [] => X
  | d :: rest => product (own d) (with_own rest X)
  end.

(* The probability that one of n keys is published, each with probability d. *)
Definition any_of (n : nat) (d : R) : R := 1 - (1 - d) ^ n.

(* A pair of probabilities: both add up to 1. *)
Definition proper_pair (X : pair) : Prop := is_pair X /\ sum fst X = 1 /\ sum snd X = 1.

Lemma sum_product_own : forall (f : R * R -> R) d X,
  sum f (product (own d) X)
  = sum (fun o => f (d * fst o, 0 * snd o)) X + sum (fun o => f ((1 - d) * fst o, 1 * snd o)) X.
Proof.
  intros. unfold product, own. simpl. rewrite app_nil_r, sum_app, !sum_map. reflexivity.
Qed.

Lemma with_own_proper : forall ds X, Forall (fun d => 0 <= d <= 1) ds ->
  proper_pair X -> proper_pair (with_own ds X).
Proof.
  intros ds X H P. induction H as [| d ds D H IH]; [exact P |].
  change (with_own (d :: ds) X) with (product (own d) (with_own ds X)).
  destruct IH as (N & F & G). split; [| split].
  - intros o Ho. unfold product, own in Ho. simpl in Ho. rewrite app_nil_r in Ho.
    apply in_app_or in Ho as [Ho | Ho]; apply in_map_iff in Ho as (a & <- & Ha);
      destruct (N a Ha); simpl; split; try apply Rmult_le_pos; lra.
  - rewrite sum_product_own. simpl. rewrite !sum_scale, F. ring.
  - rewrite sum_product_own. simpl. rewrite !sum_scale, G. ring.
Qed.

Lemma delta_at_range : forall epsilon X, proper_pair X -> 0 <= delta_at epsilon X <= 1.
Proof.
  intros epsilon X (N & F & _). unfold delta_at. split.
  - apply sum_nonneg. intros. apply pos_nonneg.
  - rewrite <- F. apply sum_le. intros o Ho. destruct (N o Ho).
    pose proof (exp_pos epsilon). apply pos_le; [nra | auto].
Qed.

Lemma delta_back_decreasing : forall epsilon epsilon' X, is_pair X -> epsilon <= epsilon' ->
  delta_back_at epsilon' X <= delta_back_at epsilon X.
Proof.
  intros epsilon epsilon' X N L. apply sum_le. intros o Ho. destruct (N o Ho).
  assert (exp epsilon <= exp epsilon').
  { destruct L as [L | ->]; [left; apply exp_increasing; exact L | right; reflexivity]. }
  pose proof (pos_nonneg (snd o - exp epsilon * fst o)).
  pose proof (pos_ge (snd o - exp epsilon * fst o)).
  apply pos_le; [nra | auto].
Qed.

Lemma delta_at_own : forall epsilon d X, 0 <= d <= 1 -> proper_pair X ->
  delta_at epsilon (product (own d) X) <= d + (1 - d) * delta_at epsilon X.
Proof.
  intros epsilon d X D (N & F & _). unfold delta_at. rewrite sum_product_own. simpl.
  apply Rplus_le_compat.
  - apply Rle_trans with (sum (fun o => d * fst o) X); [| rewrite sum_scale, F; lra].
    apply sum_le. intros o Ho. destruct (N o Ho). rewrite pos_of_nonneg; nra.
  - rewrite <- sum_scale. apply sum_le. intros o Ho. destruct (N o Ho).
    rewrite <- pos_scale by lra. pose proof (exp_pos epsilon).
    pose proof (pos_ge ((1 - d) * (fst o - exp epsilon * snd o))).
    pose proof (pos_nonneg ((1 - d) * (fst o - exp epsilon * snd o))).
    assert (0 <= d * (exp epsilon * snd o)) by (repeat apply Rmult_le_pos; lra).
    apply pos_le; [lra | auto].
Qed.

Lemma delta_back_at_own : forall epsilon d X, 0 <= d < 1 -> is_pair X ->
  delta_back_at epsilon (product (own d) X) = delta_back_at (epsilon + ln (1 - d)) X.
Proof.
  intros epsilon d X D N. unfold delta_back_at. rewrite sum_product_own. simpl.
  rewrite exp_plus, exp_ln by lra.
  rewrite (sum_ext _ (fun _ => 0)).
  - rewrite sum_zero, Rplus_0_l. apply sum_ext. intros o _. f_equal. ring.
  - intros o Ho. destruct (N o Ho). pose proof (exp_pos epsilon).
    assert (0 <= exp epsilon * (d * fst o)) by (repeat apply Rmult_le_pos; lra).
    apply pos_of_nonpos. lra.
Qed.

Theorem own_keys : forall epsilon most ds X, 0 <= most < 1 ->
  Forall (fun d => 0 <= d <= most) ds -> proper_pair X ->
  let A := any_of (length ds) most in
  delta_at epsilon (with_own ds X) <= A + (1 - A) * delta_at epsilon X
  /\ delta_back_at epsilon (with_own ds X)
     <= delta_back_at (epsilon + INR (length ds) * ln (1 - most)) X.
Proof.
  intros epsilon most ds X M H P. split.
  - assert (Q : 0 <= delta_at epsilon X <= 1) by (apply delta_at_range; auto).
    induction H as [| d ds D H IH].
    + unfold any_of. simpl. lra.
    + assert (PW : proper_pair (with_own ds X)).
      { apply with_own_proper; auto. eapply Forall_impl; [| exact H]. simpl. intros; lra. }
      change (with_own (d :: ds) X) with (product (own d) (with_own ds X)).
      eapply Rle_trans; [apply delta_at_own; auto; lra |].
      pose proof (delta_at_range epsilon _ PW).
      unfold any_of in *. simpl.
      set (b := (1 - most) ^ length ds) in *.
      apply Rle_trans with (most + (1 - most) * delta_at epsilon (with_own ds X)); [nra |].
      apply Rle_trans with (most + (1 - most) * (1 - b + (1 - (1 - b)) * delta_at epsilon X));
        [| apply Req_le; ring].
      apply Rplus_le_compat_l, Rmult_le_compat_l; lra.
  - revert epsilon. induction H as [| d ds D H IH]; intros epsilon.
    + simpl. rewrite Rmult_0_l, Rplus_0_r. lra.
    + assert (PW : proper_pair (with_own ds X)).
      { apply with_own_proper; auto. eapply Forall_impl; [| exact H]. simpl. intros; lra. }
      change (with_own (d :: ds) X) with (product (own d) (with_own ds X)).
      rewrite delta_back_at_own by (try apply PW; lra).
      eapply Rle_trans; [apply IH |].
      replace (length (d :: ds)) with (S (length ds)) by reflexivity. rewrite S_INR.
      apply delta_back_decreasing; [apply P |].
      assert (ln (1 - most) <= ln (1 - d)).
      { destruct (Req_dec d most) as [-> | N']; [lra |]. left. apply ln_increasing; lra. }
      lra.
Qed.

Theorem maximum : forall epsilon Delta most g (shared : nat -> pair), 0 <= most < 1 ->
  (forall i, proper_pair (shared i)) ->
  (forall i j, (i + j <= g)%nat ->
    any_of j most + (1 - any_of j most) * delta_at epsilon (shared i) <= Delta
    /\ delta_back_at (epsilon + INR j * ln (1 - most)) (shared i) <= Delta) ->
  forall i ds, (i + length ds <= g)%nat -> Forall (fun d => 0 <= d <= most) ds ->
  delta_at epsilon (with_own ds (shared i)) <= Delta
  /\ delta_back_at epsilon (with_own ds (shared i)) <= Delta.
Proof.
  intros epsilon Delta most g shared M P H i ds L D.
  destruct (own_keys epsilon most ds (shared i) M D (P i)) as (A & B).
  destruct (H i (length ds) L) as (A' & B'). split; eapply Rle_trans; eauto.
Qed.

Definition no_keys : pair := [(1, 1)].

Theorem one_key : forall epsilon d noise, 0 <= epsilon -> 0 <= d < 1 -> proper_pair noise ->
  forall X, X = no_keys \/ X = noise \/ X = with_own [d] no_keys ->
  delta_at epsilon X <= Rmax d (delta_at epsilon noise)
  /\ delta_back_at epsilon X <= Rmax d (delta_back_at epsilon noise).
Proof.
  intros epsilon d noise E D P X H.
  pose proof (Rmax_l d (delta_at epsilon noise)). pose proof (Rmax_r d (delta_at epsilon noise)).
  pose proof (Rmax_l d (delta_back_at epsilon noise)).
  pose proof (Rmax_r d (delta_back_at epsilon noise)).
  assert (1 <= exp epsilon).
  { rewrite <- exp_0. destruct E as [E | <-]; [left; apply exp_increasing; auto | lra]. }
  destruct H as [-> | [-> | ->]]; [| lra |].
  - unfold delta_at at 1, delta_back_at at 1. simpl. rewrite !pos_of_nonpos by lra. lra.
  - unfold delta_at at 1, delta_back_at at 1. simpl.
    split.
    + rewrite pos_of_nonneg by lra. rewrite pos_of_nonpos by nra. lra.
    + rewrite (pos_of_nonpos (0 * 1 - exp epsilon * (d * 1))) by nra.
      assert (pos (1 * 1 - exp epsilon * ((1 - d) * 1)) <= d) by (apply pos_le; nra). lra.
Qed.

Theorem laplace : forall epsilon d g (shared : nat -> pair), 0 <= d < 1 -> (0 < g)%nat ->
  exp (- (epsilon / INR g)) <= 1 - d -> 0 <= epsilon ->
  (forall i, proper_pair (shared i)) ->
  (forall i o, In o (shared i) ->
    fst o <= exp (INR i * (epsilon / INR g)) * snd o
    /\ snd o <= exp (INR i * (epsilon / INR g)) * fst o) ->
  forall i ds, (i + length ds <= g)%nat -> Forall (fun d' => 0 <= d' <= d) ds ->
  delta_at epsilon (with_own ds (shared i)) <= any_of g d
  /\ delta_back_at epsilon (with_own ds (shared i)) <= any_of g d.
Proof.
  intros epsilon d g shared D G C E P H.
  set (e := epsilon / INR g) in *.
  assert (GR : 0 < INR g) by (apply lt_0_INR; auto).
  assert (Ee : INR g * e = epsilon) by (unfold e; field; lra).
  assert (E0 : 0 <= e).
  { unfold e. apply Rmult_le_pos; auto. left. apply Rinv_0_lt_compat. auto. }
  assert (L : - e <= ln (1 - d)).
  { rewrite <- (ln_exp (- e)). destruct C as [C | <-]; [| lra].
    left. apply ln_increasing; [apply exp_pos | exact C]. }
  assert (Pw : forall n m, (n <= m)%nat -> any_of n d <= any_of m d).
  { intros n m K. unfold any_of.
    replace m with (n + (m - n))%nat by lia. rewrite pow_add.
    assert (0 <= (1 - d) ^ n) by (apply pow_le; lra).
    assert ((1 - d) ^ (m - n) <= 1).
    { apply Rle_trans with (1 ^ (m - n)); [apply pow_incr; lra | rewrite pow1; lra]. }
    assert ((1 - d) ^ n * (1 - d) ^ (m - n) <= (1 - d) ^ n * 1) by
      (apply Rmult_le_compat_l; auto).
    lra. }
  assert (A0 : 0 <= any_of g d).
  { replace 0 with (any_of 0 d) by (unfold any_of; simpl; ring). apply Pw. lia. }
  assert (up : forall i epsilon', INR i * e <= epsilon' ->
    delta_at epsilon' (shared i) = 0 /\ delta_back_at epsilon' (shared i) = 0).
  { intros i epsilon' K.
    assert (X : exp (INR i * e) <= exp epsilon').
    { destruct K as [K | <-]; [left; apply exp_increasing; exact K | right; reflexivity]. }
    destruct (P i) as (N & _).
    split; unfold delta_at, delta_back_at; rewrite (sum_ext _ (fun _ => 0)); try apply sum_zero;
      intros o Ho; destruct (N o Ho); destruct (H i o Ho); apply pos_of_nonpos; nra. }
  apply (maximum epsilon (any_of g d) d g shared D P).
  intros i j K.
  assert (KR : INR i + INR j <= INR g).
  { rewrite <- plus_INR. apply le_INR. exact K. }
  pose proof (pos_INR j) as J.
  split.
  - destruct (up i epsilon) as (-> & _); [nra |].
    rewrite Rmult_0_r, Rplus_0_r. apply Pw. lia.
  - destruct (up i (epsilon + INR j * ln (1 - d))) as (_ & ->); [| exact A0]. nra.
Qed.

(* A key of n + 1 units under x, of n units under x': published with p', or with p. *)
Definition published (p' p : R) : pair := [(p', p); (1 - p', 1 - p)].

Theorem rule_for_keys : forall epsilon delta p p', 0 <= epsilon -> 0 <= delta ->
  0 <= p -> p <= p' -> p' <= 1 ->
  p' <= exp epsilon * p + delta -> p' <= 1 - (1 - p - delta) / exp epsilon ->
  delta_at epsilon (published p' p) <= delta /\ delta_back_at epsilon (published p' p) <= delta.
Proof.
  intros epsilon delta p p' E D P Q One U V.
  assert (F : 1 <= exp epsilon).
  { rewrite <- exp_0. destruct E as [E | <-]; [left; apply exp_increasing; auto | lra]. }
  set (f := exp epsilon) in *.
  assert (W : 1 - p - delta <= f * (1 - p')).
  { apply Rmult_le_reg_r with (/ f); [apply Rinv_0_lt_compat; lra |].
    replace (f * (1 - p') * / f) with (1 - p') by (field; lra).
    unfold Rdiv in V. lra. }
  unfold delta_at, delta_back_at, published. simpl. fold f. split.
  - rewrite (pos_of_nonpos (1 - p' - f * (1 - p))) by nra.
    assert (pos (p' - f * p) <= delta) by (apply pos_le; lra). lra.
  - rewrite (pos_of_nonpos (p - f * p')) by nra.
    assert (pos (1 - p - f * (1 - p')) <= delta) by (apply pos_le; lra). lra.
Qed.

Print Assumptions own_keys.
Print Assumptions maximum.
Print Assumptions one_key.
Print Assumptions laplace.
Print Assumptions rule_for_keys.
