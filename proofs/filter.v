(* Composition where each output pays its own price (the ODP filter without its bookkeeping).

   IN PLAIN WORDS.  An analyst asks mechanisms one after the other.  Which mechanism comes next, at
   which prices and at which delta, may depend on every earlier answer, and the analyst may stop at
   any time.  Let E(v) be the sum of the prices of the outputs of a view v, and let the deltas of
   the mechanisms that ran add up to at most `delta` in every view.

   Theorem composition:  for every set S of views,
       Pr(view under x in S)  <=  delta + sum over v in S of e^E(v) Pr(view under x' is v).
   Theorem filter:       if also E(v) <= epsilon in every view, then
       Pr(view under x in S)  <=  delta + e^epsilon Pr(view under x' in S).
   Theorem both_directions:  if every mechanism keeps its promise for (x, x') and for (x', x), so
       does the whole view.

   Source: Hartmann, Bindschaedler, Bentkamp, West 2022, Algorithm 1 and Theorem 7; the proof is the
   one in the docstring of src/tightbudget/output_dp/filter.py.  The account that keeps the sums
   below the cap is in account.v. *)

From Coq Require Import Reals Lra List Bool.
From Tightbudget Require Import sums.
Import ListNotations.
Open Scope R_scope.

Section Composition.

Variable D : Type.  (* data sets *)
Variable O : Type.  (* outputs *)
Variable A : Type.  (* what a view shows: for instance the transcript *)

(* One run of a mechanism: its possible outputs, the probability of each on each data set, the
   price of each output (that of its cell), and one delta for all outputs. *)
Record run := Run {
  outputs : list O;
  prob : D -> O -> R;
  price : O -> R;
  delta : R }.

(* The probabilities are some: none is negative, and they add up to 1. *)
Definition proper (x : D) (r : run) : Prop :=
  (forall o, In o (outputs r) -> 0 <= prob r x o) /\ sum (prob r x) (outputs r) = 1.

(* The promise of a mechanism: Definition 2 of the paper, for one ordered pair of data sets.  The
   sum over the outputs in S of e^price is the sum over cells P of e^price(P) Pr(M(x') in S and P),
   written output by output. *)
Definition odp (x x' : D) (r : run) : Prop :=
  forall S : O -> bool,
    sum (fun o => when (S o) (prob r x o)) (outputs r)
    <= delta r + sum (fun o => when (S o) (exp (price r o) * prob r x' o)) (outputs r).

(* An adaptive analyst: one who stops and shows `a`, or asks for a run and goes on in a way that
   depends on its output, and by that on all outputs so far. *)
Inductive analyst :=
  | Stop (a : A)
  | Ask (r : run) (next : O -> analyst).

(* Every run that the analyst may come to has probabilities, and keeps its promise. *)
Fixpoint honest (x x' : D) (t : analyst) : Prop :=
  match t with
  | Stop _ => True
  | Ask r next =>
      proper x r /\ proper x' r /\ odp x x' r
      /\ forall o, In o (outputs r) -> honest x x' (next o)
  end.

(* A view: what it shows, its probability on each data set, and what was paid for it. *)
Record view := View {
  shown : A;
  chance : D -> R;
  paid : R;
  paid_delta : R }.

(* The views of what follows an output, as views of the whole. *)
Definition after (r : run) (o : O) (v : view) : view :=
  View (shown v) (fun x => prob r x o * chance v x) (price r o + paid v) (delta r + paid_delta v).

Fixpoint views (t : analyst) : list view :=
  match t with
  | Stop a => [View a (fun _ => 1) 0 0]
  | Ask r next => flat_map (fun o => map (after r o) (views (next o))) (outputs r)
  end.

(* ------------------------------------------------------------------------- the proof *)

Lemma sum_views : forall (f : view -> R) r next,
  sum f (views (Ask r next))
  = sum (fun o => sum (fun v => f (after r o v)) (views (next o))) (outputs r).
Proof.
  intros. simpl. rewrite sum_flat_map. apply sum_ext. intros o _. apply sum_map.
Qed.

Lemma chance_nonneg : forall x x' t, honest x x' t ->
  forall v, In v (views t) -> 0 <= chance v x /\ 0 <= chance v x'.
Proof.
  induction t as [a | r next IH]; simpl; intros H v Hv.
  - destruct Hv as [<- | []]. simpl. lra.
  - destruct H as ((P & _) & (Q & _) & _ & H).
    apply in_flat_map in Hv as (o & Ho & Hv). apply in_map_iff in Hv as (w & <- & Hw).
    specialize (P o Ho). specialize (Q o Ho). destruct (IH o (H o Ho) w Hw).
    simpl. split; apply Rmult_le_pos; auto.
Qed.

Lemma chances_sum : forall x x' t, honest x x' t -> sum (fun v => chance v x) (views t) = 1.
Proof.
  induction t as [a | r next IH]; intros H; [simpl; lra |].
  rewrite sum_views. simpl in *. destruct H as ((_ & P) & _ & _ & H).
  rewrite <- P. apply sum_ext. intros o Ho. rewrite sum_scale, IH; auto. ring.
Qed.

(* The excess of an output: its probability under x beyond e^price times that under x'. *)
Definition excess (x x' : D) (r : run) (o : O) : R :=
  pos (prob r x o - exp (price r o) * prob r x' o).

Definition is_nonneg (a : R) : bool := if Rle_dec 0 a then true else false.

(* The promise for all sets is the promise for the worst of them. *)
Lemma odp_excess : forall x x' r, odp x x' r -> sum (excess x x' r) (outputs r) <= delta r.
Proof.
  intros x x' r H.
  specialize (H (fun o => is_nonneg (prob r x o - exp (price r o) * prob r x' o))). simpl in H.
  apply Rplus_le_reg_r with
    (sum (fun o => when (is_nonneg (prob r x o - exp (price r o) * prob r x' o))
                     (exp (price r o) * prob r x' o)) (outputs r)).
  rewrite <- sum_plus.
  eapply Rle_trans; [| exact H]. apply Req_le, sum_ext. intros o _.
  unfold excess, is_nonneg, when. destruct (Rle_dec 0 _).
  - rewrite pos_of_nonneg; lra.
  - rewrite pos_of_nonpos; lra.
Qed.

Lemma excess_odp : forall x x' r,
  sum (excess x x' r) (outputs r) <= delta r -> odp x x' r.
Proof.
  intros x x' r H S.
  apply Rle_trans with (sum (excess x x' r) (outputs r)
    + sum (fun o => when (S o) (exp (price r o) * prob r x' o)) (outputs r)); [| lra].
  rewrite <- sum_plus. apply sum_le. intros o _.
  pose proof (pos_ge (prob r x o - exp (price r o) * prob r x' o)).
  pose proof (pos_nonneg (prob r x o - exp (price r o) * prob r x' o)).
  unfold excess, when. destruct (S o); lra.
Qed.

(* (a p - c q)_+ <= (a - c)_+ p + a (p - q)_+ : the excess of a pair of outputs. *)
Lemma excess_of_product : forall a c p q, 0 <= a -> 0 <= c -> 0 <= p -> 0 <= q ->
  pos (a * p - c * q) <= pos (a - c) * p + a * pos (p - q).
Proof.
  intros a c p q HA HC HP HQ.
  pose proof (pos_ge (a - c)). pose proof (pos_nonneg (a - c)).
  pose proof (pos_ge (p - q)). pose proof (pos_nonneg (p - q)).
  apply pos_le; [| nra].
  destruct (Rle_dec a c).
  - assert (a * (p - q) <= a * pos (p - q)) by nra. nra.
  - (* a p - c q = (a - c) p + c (p - q) *)
    assert (c * (p - q) <= c * pos (p - q)) by nra.
    assert (c * pos (p - q) <= a * pos (p - q)) by nra.
    nra.
Qed.

Definition view_excess (x x' : D) (v : view) : R :=
  pos (chance v x - exp (paid v) * chance v x').

(* The lemma that the library's page and docstrings quote: the excesses of all views add up to at
   most delta, if the deltas paid do so in every view. *)
Lemma excesses : forall x x' t total, honest x x' t ->
  (forall v, In v (views t) -> paid_delta v <= total) ->
  sum (view_excess x x') (views t) <= total.
Proof.
  intros x x' t. induction t as [a | r next IH]; intros total H most.
  - specialize (most _ (or_introl eq_refl)). simpl in *.
    unfold view_excess. simpl. rewrite exp_0, pos_of_nonpos; lra.
  - rewrite sum_views. pose proof H as (P & Q & M & N).
    assert (rest : forall o, In o (outputs r) ->
      sum (view_excess x x') (views (next o)) <= total - delta r).
    { intros o Ho. apply IH; auto. intros v Hv.
      assert (In (after r o v) (views (Ask r next))) as V.
      { simpl. apply in_flat_map. exists o. split; auto. apply in_map. exact Hv. }
      specialize (most _ V). simpl in most. lra. }
    apply Rle_trans with
      (sum (fun o => excess x x' r o + prob r x o * (total - delta r)) (outputs r)).
    + apply sum_le. intros o Ho.
      destruct P as (P & _). destruct Q as (Q & _). specialize (P o Ho). specialize (Q o Ho).
      pose proof (N o Ho) as honest_o.
      apply Rle_trans with (sum (fun v => excess x x' r o * chance v x
                                          + prob r x o * view_excess x x' v) (views (next o))).
      * apply sum_le. intros v Hv.
        destruct (chance_nonneg x x' (next o) honest_o v Hv).
        unfold view_excess, excess. simpl.
        rewrite exp_plus.
        replace (prob r x o * chance v x
                 - exp (price r o) * exp (paid v) * (prob r x' o * chance v x'))
          with (prob r x o * chance v x
                - exp (price r o) * prob r x' o * (exp (paid v) * chance v x')) by ring.
        pose proof (exp_pos (price r o)). pose proof (exp_pos (paid v)).
        apply excess_of_product; try apply Rmult_le_pos; lra.
      * rewrite sum_plus, !sum_scale, (chances_sum x x') by auto.
        specialize (rest o Ho). nra.
    + rewrite sum_plus, sum_scale_right.
      destruct P as (_ & P). rewrite P.
      pose proof (odp_excess x x' r M). lra.
Qed.

(* ---------------------------------------------------------------------- the theorems *)

Theorem composition : forall x x' t total, honest x x' t ->
  (forall v, In v (views t) -> paid_delta v <= total) ->
  forall S : A -> bool,
    sum (fun v => when (S (shown v)) (chance v x)) (views t)
    <= total + sum (fun v => when (S (shown v)) (exp (paid v) * chance v x')) (views t).
Proof.
  intros x x' t total H most S.
  pose proof (excesses x x' t total H most) as E.
  apply Rle_trans with (sum (view_excess x x') (views t)
    + sum (fun v => when (S (shown v)) (exp (paid v) * chance v x')) (views t)); [| lra].
  rewrite <- sum_plus. apply sum_le. intros v _.
  pose proof (pos_ge (chance v x - exp (paid v) * chance v x')).
  pose proof (pos_nonneg (chance v x - exp (paid v) * chance v x')).
  unfold view_excess, when. destruct (S (shown v)); lra.
Qed.

Theorem filter : forall x x' t epsilon total, honest x x' t ->
  (forall v, In v (views t) -> paid v <= epsilon /\ paid_delta v <= total) ->
  forall S : A -> bool,
    sum (fun v => when (S (shown v)) (chance v x)) (views t)
    <= total + exp epsilon * sum (fun v => when (S (shown v)) (chance v x')) (views t).
Proof.
  intros x x' t epsilon total H most S.
  eapply Rle_trans.
  - apply (composition x x' t total H). intros v Hv. apply (most v Hv).
  - apply Rplus_le_compat_l. rewrite <- sum_scale. apply sum_le. intros v Hv.
    destruct (most v Hv) as (m & _). destruct (chance_nonneg x x' t H v Hv).
    assert (exp (paid v) <= exp epsilon).
    { destruct m as [m | ->]; [left; apply exp_increasing; exact m | right; reflexivity]. }
    unfold when. destruct (S (shown v)); nra.
Qed.

Theorem both_directions : forall x x' t epsilon total,
  honest x x' t -> honest x' x t ->
  (forall v, In v (views t) -> paid v <= epsilon /\ paid_delta v <= total) ->
  forall S : A -> bool,
    sum (fun v => when (S (shown v)) (chance v x)) (views t)
    <= total + exp epsilon * sum (fun v => when (S (shown v)) (chance v x')) (views t)
    /\
    sum (fun v => when (S (shown v)) (chance v x')) (views t)
    <= total + exp epsilon * sum (fun v => when (S (shown v)) (chance v x)) (views t).
Proof. intros. split; apply filter; auto. Qed.

(* -------------------------------------------------- what is charged without being settled *)

(* A mechanism keeps its promise at every higher price and delta: rounding up is sound, and so is
   to charge the price of the worst cell for a run that was never settled. *)
Theorem higher_price : forall x x' outs p price1 price2 delta1 delta2,
  (forall o, In o outs -> 0 <= p x' o) ->
  (forall o, In o outs -> price1 o <= price2 o) -> delta1 <= delta2 ->
  odp x x' (Run outs p price1 delta1) -> odp x x' (Run outs p price2 delta2).
Proof.
  intros x x' outs p price1 price2 delta1 delta2 P H K M S. simpl in *.
  eapply Rle_trans; [apply (M S) |]. simpl. apply Rplus_le_compat; auto.
  apply sum_le. intros o Ho. unfold when. destruct (S o); [| lra].
  specialize (P o Ho). specialize (H o Ho).
  assert (exp (price1 o) <= exp (price2 o)).
  { destruct H as [H | ->]; [left; apply exp_increasing; exact H | right; reflexivity]. }
  nra.
Qed.

End Composition.

Arguments Run {D O} outputs prob price delta.
Arguments outputs {D O} r.
Arguments prob {D O} r _ _.
Arguments price {D O} r _.
Arguments delta {D O} r.
Arguments proper {D O} x r.
Arguments odp {D O} x x' r.
Arguments Stop {D O A} a.
Arguments Ask {D O A} r next.
Arguments honest {D O A} x x' t.
Arguments View {D A} shown chance paid paid_delta.
Arguments shown {D A} v.
Arguments chance {D A} v _.
Arguments paid {D A} v.
Arguments paid_delta {D A} v.
Arguments after {D O A} r o v.
Arguments views {D O A} t.

Print Assumptions composition.
Print Assumptions filter.
Print Assumptions both_directions.
Print Assumptions higher_price.
