(* New guarantees from old ones: what the methods of OutputDP promise.

   IN PLAIN WORDS.

   Theorem worst_case:  a mechanism with prices by cell is (largest price, delta)-DP (Lemma 4).
   Theorem subset_dp:   a mechanism with an epsilon and a delta for each cell has these epsilons
                        as prices, and the *sum* of the deltas as its delta (Lemma 6).
   Theorem coarsened:   joining cells at their largest price, or at more, keeps the promise.  (To
                        split a cell into cells of its price changes no price of an output.)
   Theorem joined:      independent mechanisms together: prices and deltas add up.

   Source: Hartmann, Bindschaedler, Bentkamp, West 2022; src/tightbudget/output_dp/guarantee.py. *)

From Coq Require Import Reals Lra List Bool.
From Tightbudget Require Import sums filter.
Import ListNotations.
Open Scope R_scope.

Section Guarantees.

Variable D : Type.  (* data sets *)
Variable O : Type.  (* outputs *)
Variable C : Type.  (* cells *)
Variable cell_eq_dec : forall c c' : C, {c = c'} + {c <> c'}.

Lemma exp_le : forall a b, a <= b -> exp a <= exp b.
Proof.
  intros a b [H | ->]; [left; apply exp_increasing; exact H | right; reflexivity].
Qed.

Theorem worst_case : forall x x' (r : run D O) largest, proper x' r -> odp x x' r ->
  (forall o, In o (outputs r) -> price r o <= largest) ->
  forall S : O -> bool,
    sum (fun o => when (S o) (prob r x o)) (outputs r)
    <= delta r + exp largest * sum (fun o => when (S o) (prob r x' o)) (outputs r).
Proof.
  intros x x' r largest (N & _) P L S. eapply Rle_trans; [apply (P S) |].
  apply Rplus_le_compat_l. rewrite <- sum_scale. apply sum_le. intros o Ho.
  specialize (N o Ho). pose proof (exp_le _ _ (L o Ho)).
  unfold when. destruct (S o); nra.
Qed.

Definition in_cell (cell : O -> C) (c : C) (o : O) : bool :=
  if cell_eq_dec (cell o) c then true else false.

(* Each output is in one cell. *)
Lemma by_cells : forall (cell : O -> C) cells outs (f : O -> R), NoDup cells ->
  (forall o, In o outs -> In (cell o) cells) ->
  sum f outs = sum (fun c => sum (fun o => when (in_cell cell c o) (f o)) outs) cells.
Proof.
  intros cell cells outs f N H. rewrite <- sum_swap. apply sum_ext. intros o Ho.
  rewrite (sum_changed_at (fun _ => 0) _ (cell o) cells); auto.
  - rewrite sum_zero. unfold in_cell. destruct (cell_eq_dec (cell o) (cell o)); [simpl; ring |].
    congruence.
  - intros c _ K. unfold in_cell. destruct (cell_eq_dec (cell o) c); [congruence | reflexivity].
Qed.

Theorem subset_dp : forall x x' outs (p : D -> O -> R) (cell : O -> C) cells epsilon_of delta_of,
  NoDup cells -> (forall o, In o outs -> In (cell o) cells) ->
  (forall c, In c cells -> forall S : O -> bool,
    sum (fun o => when (in_cell cell c o && S o) (p x o)) outs
    <= delta_of c
       + exp (epsilon_of c) * sum (fun o => when (in_cell cell c o && S o) (p x' o)) outs) ->
  odp x x' (Run outs p (fun o => epsilon_of (cell o)) (sum delta_of cells)).
Proof.
  intros x x' outs p cell cells epsilon_of delta_of N H P S. simpl.
  rewrite (by_cells cell cells outs _ N H).
  rewrite (by_cells cell cells outs (fun o => when (S o) (exp _ * _)) N H).
  rewrite <- sum_plus. apply sum_le. intros c Hc.
  eapply Rle_trans; [| eapply Rle_trans; [apply (P c Hc S) |]]; apply Req_le.
  - apply sum_ext. intros o _. unfold when. destruct (in_cell cell c o), (S o); reflexivity.
  - f_equal. rewrite <- sum_scale. apply sum_ext. intros o _. unfold when, in_cell.
    destruct (cell_eq_dec (cell o) c) as [<- |]; simpl; destruct (S o); simpl; ring.
Qed.

Theorem coarsened : forall x x' outs (p : D -> O -> R) (cell : O -> C) (group : C -> C)
    price_of price_of_group total,
  (forall o, In o outs -> 0 <= p x' o) ->
  (forall c, price_of c <= price_of_group (group c)) ->
  odp x x' (Run outs p (fun o => price_of (cell o)) total) ->
  odp x x' (Run outs p (fun o => price_of_group (group (cell o))) total).
Proof.
  intros x x' outs p cell group price_of price_of_group total N H P.
  refine (higher_price D O x x' outs p _ _ total total N _ _ P); [| lra].
  intros o _. apply H.
Qed.

(* Two independent mechanisms, whose outputs are shown together. *)
Definition both (r r' : run D O) : run D (O * O) :=
  Run (flat_map (fun o => map (pair o) (outputs r')) (outputs r))
      (fun x o => prob r x (fst o) * prob r' x (snd o))
      (fun o => price r (fst o) + price r' (snd o))
      (delta r + delta r').

Theorem joined : forall x x' (r r' : run D O),
  proper x r -> proper x' r -> proper x r' -> proper x' r' ->
  odp x x' r -> odp x x' r' -> odp x x' (both r r').
Proof.
  intros x x' r r' P P' Q Q' H H' S.
  pose (t := Ask r (fun o => Ask r' (fun o' => Stop (o, o')))).
  assert (V : forall f, sum f (views t) = sum (fun o => sum (fun o' =>
      f (after r o (after r' o' (View (o, o') (fun _ => 1) 0 0)))) (outputs r')) (outputs r)).
  { intros f. unfold t. rewrite (sum_views D O (O * O)). apply sum_ext. intros o _.
    rewrite (sum_views D O (O * O)). apply sum_ext. intros o' _. simpl. ring. }
  pose proof (composition D O (O * O) x x' t (delta r + delta r')) as K.
  simpl. rewrite !sum_flat_map.
  eapply Rle_trans; [| eapply Rle_trans; [apply K with (S := S) |]].
  - rewrite V. apply Req_le, sum_ext. intros o _. rewrite sum_map. apply sum_ext. intros o' _.
    simpl. unfold when. destruct (S (o, o')); ring.
  - simpl. auto 8.
  - intros v Hv. unfold t in Hv. simpl in Hv.
    apply in_flat_map in Hv as (o & _ & Hv). apply in_map_iff in Hv as (w & <- & Hw).
    apply in_flat_map in Hw as (o' & _ & Hw). destruct Hw as [<- | []]. simpl. lra.
  - rewrite V. apply Req_le. f_equal. apply sum_ext. intros o _. rewrite sum_map.
    apply sum_ext. intros o' _. simpl. unfold when. rewrite Rplus_0_r.
    destruct (S (o, o')); ring.
Qed.

End Guarantees.

Print Assumptions worst_case.
Print Assumptions subset_dp.
Print Assumptions coarsened.
Print Assumptions joined.
