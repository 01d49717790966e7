(* One interactive mechanism with any delta, and mechanisms that answer once beside it.

   IN PLAIN WORDS.  One interactive mechanism is open.  It keeps its promise for whoever talks with it
   alone, whatever they ask: its prices are for whole conversations, and it has one delta.  While it is
   open, the analyst runs mechanisms that answer once, each chosen by all that was seen so far, and
   puts questions to the open one in between, chosen likewise.  The analyst stops at any time.

   Theorem one_beside:  for every set S of what is shown,
       Pr(shown under x in S)  <=  delta + total + sum over views in S of e^(prices) Pr(view under x'),
   where delta is that of the interactive mechanism, and `total` is at least the sum of the deltas of
   the others in every view.

   The proof adds two halves.  Seen from the open mechanism, answers of the others are coins by which
   its analyst chooses: some choice of the coins is as bad as their average.  Seen from the others, its
   answers are coins, too, and their composition (filter.v) holds for each.

   Where two with a delta above 0 are open at once, the first half does not hold: what one answers
   depends on the record, as no coin does. *)

From Coq Require Import Reals Lra List Bool.
From Tightbudget Require Import sums filter.
Import ListNotations.
Open Scope R_scope.

Section Beside.

Variable D : Type.         (* data sets *)
Variable O : Type.         (* outputs of the mechanisms that answer once *)
Variable Question : Type.
Variable Answer : Type.
Variable Shown : Type.     (* what a view shows *)
Variable answer_eq_dec : forall a a' : Answer, {a = a'} + {a <> a'}.
Variables x x' : D.

(* A conversation, the latest question and answer first. *)
Definition conversation := list (Question * Answer).

(* The interactive mechanism: its possible answers, the probability of each, and the price of a
   conversation that ends here. *)
Variable answers : conversation -> Question -> list Answer.
Variable chance : D -> conversation -> Question -> Answer -> R.
Variable price_of : conversation -> R.
Variable delta_of : R.
Variable chance_nonneg : forall y c q a, 0 <= chance y c q a.
Variable chances_add : forall c q, sum (chance x c q) (answers c q) = 1.

(* One who talks with the interactive mechanism alone. *)
Inductive script :=
  | Enough
  | Put (q : Question) (next : Answer -> script).

(* The excess of all that may come of it: probability under x beyond e^price times that under x'. *)
Fixpoint alone (s : script) (c : conversation) (a b : R) : R :=
  match s with
  | Enough => pos (a - exp (price_of c) * b)
  | Put q next => sum (fun o => alone (next o) ((q, o) :: c)
                                 (a * chance x c q o) (b * chance x' c q o)) (answers c q)
  end.

(* The promise: for everyone who talks with it alone. *)
Variable promise : forall s, alone s [] 1 1 <= delta_of.

(* The analyst: runs a mechanism that answers once, or puts a question, or stops. *)
Inductive analyst :=
  | Stop (s : Shown)
  | Ask (r : run D O) (next : O -> analyst)
  | Speak (q : Question) (next : Answer -> analyst).

Fixpoint honest (t : analyst) : Prop :=
  match t with
  | Stop _ => True
  | Ask r next => proper x r /\ proper x' r /\ odp x x' r
                  /\ forall o, In o (outputs r) -> honest (next o)
  | Speak _ next => forall a, honest (next a)
  end.

(* What the deltas of mechanisms that answer once may still add up to, in every view. *)
Fixpoint deltas_within (t : analyst) (rest : R) : Prop :=
  match t with
  | Stop _ => 0 <= rest
  | Ask r next => forall o, In o (outputs r) -> deltas_within (next o) (rest - delta r)
  | Speak _ next => forall a, deltas_within (next a) rest
  end.

(* A view: the probabilities of the conversation (a under x, b under x') and of the other outputs
   (c and d), the price of the conversation, and the sum of the other prices. *)
Record view := View { shown : Shown; a_ : R; b_ : R; c_ : R; d_ : R; talked : R; others : R }.

Fixpoint views (t : analyst) (h : conversation) (a b c d e : R) : list view :=
  match t with
  | Stop s => [View s a b c d (price_of h) e]
  | Ask r next => flat_map (fun o =>
      views (next o) h a b (c * prob r x o) (d * prob r x' o) (e + price r o)) (outputs r)
  | Speak q next => flat_map (fun o =>
      views (next o) ((q, o) :: h) (a * chance x h q o) (b * chance x' h q o) c d e) (answers h q)
  end.

Definition under_x (v : view) : R := a_ v * c_ v.
Definition under_x' (v : view) : R := b_ v * d_ v.
Definition paid (v : view) : R := talked v + others v.

(* --------------------------------------------------- the half of the interactive mechanism *)

Definition talk_excess (v : view) : R := pos (a_ v - exp (talked v) * b_ v) * c_ v.

Lemma alone_nonneg : forall s h a b, 0 <= alone s h a b.
Proof.
  induction s as [| q next IH]; intros h a b; simpl; [apply pos_nonneg |].
  apply sum_nonneg. intros o _. apply IH.
Qed.

(* Among finitely many scripts there is a worst one. *)
Lemma worst_script : forall (f : O -> R) (w : O -> R) h a b l,
  (forall o, In o l -> 0 <= w o) ->
  (forall o, In o l -> exists s, f o <= w o * alone s h a b) ->
  exists s, forall o, In o l -> f o <= w o * alone s h a b.
Proof.
  intros f w h a b l W. induction l as [| o l IH]; intros H.
  - exists Enough. intros o [].
  - destruct IH as (s & S).
    { intros o' Ho. apply W. simpl. auto. }
    { intros o' Ho. apply H. simpl. auto. }
    destruct (H o) as (s' & S'); [simpl; auto |].
    destruct (Rle_dec (alone s h a b) (alone s' h a b)) as [L | L].
    + exists s'. intros o' [<- | Ho]; [exact S' |].
      eapply Rle_trans; [apply S; exact Ho |]. apply Rmult_le_compat_l; [| exact L].
      apply W. simpl. auto.
    + exists s. intros o' [<- | Ho]; [| apply S; exact Ho].
      eapply Rle_trans; [exact S' |]. apply Rmult_le_compat_l; [| lra].
      apply W. simpl. auto.
Qed.

(* One script for each answer makes one script. *)
Lemma scripts_together : forall (good : Answer -> script -> Prop) l,
  (forall o, In o l -> exists s, good o s) ->
  exists next : Answer -> script, forall o, In o l -> good o (next o).
Proof.
  intros good l. induction l as [| o l IH]; intros H.
  - exists (fun _ => Enough). intros o [].
  - destruct IH as (next & N); [intros o' Ho; apply H; simpl; auto |].
    destruct (H o) as (s & S); [simpl; auto |].
    exists (fun o' => if answer_eq_dec o' o then s else next o').
    intros o' Ho. destruct (answer_eq_dec o' o) as [-> | E]; [exact S |].
    destruct Ho as [-> | Ho]; [congruence | apply N; exact Ho].
Qed.

Lemma talk_half : forall t, honest t -> forall h a b c d e, 0 <= c ->
  exists s, sum talk_excess (views t h a b c d e) <= c * alone s h a b.
Proof.
  induction t as [s | r next IH | q next IH]; intros H h a b c d e C.
  - exists Enough. simpl. unfold talk_excess. simpl. lra.
  - destruct H as ((P & T) & _ & _ & H).
    destruct (worst_script (fun o => sum talk_excess (views (next o) h a b
        (c * prob r x o) (d * prob r x' o) (e + price r o))) (fun o => c * prob r x o)
        h a b (outputs r)) as (s & S).
    { intros o Ho. apply Rmult_le_pos; auto. }
    { intros o Ho. apply IH; auto. apply Rmult_le_pos; auto. }
    exists s. simpl. rewrite sum_flat_map.
    apply Rle_trans with (sum (fun o => c * prob r x o * alone s h a b) (outputs r)).
    + apply sum_le. exact S.
    + rewrite sum_scale_right, sum_scale, T. lra.
  - simpl in H.
    destruct (scripts_together (fun o s => sum talk_excess (views (next o) ((q, o) :: h)
        (a * chance x h q o) (b * chance x' h q o) c d e)
        <= c * alone s ((q, o) :: h) (a * chance x h q o) (b * chance x' h q o))
      (answers h q)) as (then_ & S).
    { intros o _. apply IH; auto. }
    exists (Put q then_). simpl. rewrite sum_flat_map, <- sum_scale. apply sum_le. exact S.
Qed.

(* ------------------------------------------------------------------- the half of the others *)

Definition other_excess (v : view) : R := a_ v * pos (c_ v - exp (others v) * d_ v).

Lemma other_half : forall t rest, honest t -> deltas_within t rest ->
  forall h a b c d e, 0 <= a -> 0 <= c -> 0 <= d ->
  sum other_excess (views t h a b c d e) <= a * (pos (c - exp e * d) + c * rest).
Proof.
  induction t as [s | r next IH | q next IH]; intros rest H W h a b c d e A C Dd.
  - simpl in W. simpl. unfold other_excess. simpl.
    assert (0 <= c * rest) by (apply Rmult_le_pos; auto).
    assert (a * pos (c - exp e * d) <= a * (pos (c - exp e * d) + c * rest)); [| lra].
    apply Rmult_le_compat_l; lra.
  - destruct H as ((P & T) & (P' & _) & M & H). simpl in W.
    cbn [views]. rewrite sum_flat_map.
    apply Rle_trans with (sum (fun o => a * (pos (c - exp e * d) * prob r x o
        + c * excess D O x x' r o + c * (rest - delta r) * prob r x o)) (outputs r)).
    + apply sum_le. intros o Ho. specialize (P o Ho). specialize (P' o Ho).
      eapply Rle_trans; [apply (IH o (rest - delta r)); auto; apply Rmult_le_pos; auto |].
      apply Rmult_le_compat_l; auto. rewrite exp_plus. unfold excess.
      replace (exp e * exp (price r o) * (d * prob r x' o))
        with (exp e * d * (exp (price r o) * prob r x' o)) by ring.
      pose proof (exp_pos e). pose proof (exp_pos (price r o)).
      assert (pos (c * prob r x o - exp e * d * (exp (price r o) * prob r x' o))
        <= pos (c - exp e * d) * prob r x o
           + c * pos (prob r x o - exp (price r o) * prob r x' o)).
      { apply excess_of_product; try apply Rmult_le_pos; lra. }
      lra.
    + rewrite sum_scale, !sum_plus, !sum_scale, T.
      pose proof (odp_excess D O x x' r M) as E.
      assert (c * sum (excess D O x x' r) (outputs r) <= c * delta r)
        by (apply Rmult_le_compat_l; auto).
      apply Rmult_le_compat_l; auto. lra.
  - simpl in H, W. cbn [views]. rewrite sum_flat_map.
    apply Rle_trans with (sum (fun o => a * (pos (c - exp e * d) + c * rest) * chance x h q o)
      (answers h q)).
    + apply sum_le. intros o _.
      eapply Rle_trans; [apply (IH o rest); auto; apply Rmult_le_pos; auto |]. lra.
    + rewrite sum_scale, chances_add. lra.
Qed.

(* --------------------------------------------------------------------------- the theorem *)

Definition all_of (t : analyst) : list view := views t [] 1 1 1 1 0.

Lemma views_nonneg : forall t, honest t -> forall h a b c d e,
  0 <= a -> 0 <= b -> 0 <= c -> 0 <= d ->
  forall v, In v (views t h a b c d e) -> 0 <= a_ v /\ 0 <= b_ v /\ 0 <= c_ v /\ 0 <= d_ v.
Proof.
  induction t as [s | r next IH | q next IH]; intros H h a b c d e A B C Dd v Hv; simpl in Hv.
  - destruct Hv as [<- | []]. simpl. auto.
  - destruct H as ((P & _) & (P' & _) & _ & H).
    apply in_flat_map in Hv as (o & Ho & Hv).
    apply (IH o (H o Ho) h a b (c * prob r x o) (d * prob r x' o) (e + price r o)); auto;
      apply Rmult_le_pos; auto.
  - apply in_flat_map in Hv as (o & Ho & Hv).
    apply (IH o (H o) ((q, o) :: h) (a * chance x h q o) (b * chance x' h q o) c d e); auto;
      apply Rmult_le_pos; auto.
Qed.

Theorem one_beside : forall t total, honest t -> deltas_within t total ->
  forall S : Shown -> bool,
    sum (fun v => when (S (shown v)) (under_x v)) (all_of t)
    <= delta_of + total
       + sum (fun v => when (S (shown v)) (exp (paid v) * under_x' v)) (all_of t).
Proof.
  intros t total H W S.
  destruct (talk_half t H [] 1 1 1 1 0 Rle_0_1) as (s & first).
  pose proof (promise s) as P.
  pose proof (other_half t total H W [] 1 1 1 1 0 Rle_0_1 Rle_0_1 Rle_0_1) as second.
  rewrite exp_0 in second. replace (1 - 1 * 1) with 0 in second by ring.
  rewrite pos_of_nonneg in second by lra.
  apply Rle_trans with (sum talk_excess (all_of t) + sum other_excess (all_of t)
    + sum (fun v => when (S (shown v)) (exp (paid v) * under_x' v)) (all_of t)).
  - rewrite <- !sum_plus. apply sum_le. intros v Hv.
    destruct (views_nonneg t H [] 1 1 1 1 0 Rle_0_1 Rle_0_1 Rle_0_1 Rle_0_1 v Hv)
      as (A & B & C & Dd).
    pose proof (exp_pos (talked v)). pose proof (exp_pos (others v)).
    assert (E : pos (a_ v * c_ v - exp (talked v) * b_ v * (exp (others v) * d_ v))
      <= talk_excess v + other_excess v).
    { unfold talk_excess, other_excess.
      apply excess_of_product; try apply Rmult_le_pos; lra. }
    pose proof (pos_ge (a_ v * c_ v - exp (talked v) * b_ v * (exp (others v) * d_ v))) as G.
    pose proof (pos_nonneg (a_ v * c_ v - exp (talked v) * b_ v * (exp (others v) * d_ v))) as N.
    unfold when, under_x, under_x', paid. rewrite exp_plus.
    replace (exp (talked v) * exp (others v) * (b_ v * d_ v))
      with (exp (talked v) * b_ v * (exp (others v) * d_ v)) by ring.
    destruct (S (shown v)); lra.
  - unfold all_of. lra.
Qed.

End Beside.

Print Assumptions one_beside.
