(* A mechanism that may stop early: the delta at given prices is what backward induction finds.

   IN PLAIN WORDS.  A mechanism runs in blocks, each chosen after seeing the outputs of those before.
   After some blocks it may stop, and pays the price E of that place; after the last it must stop.
   `value` is the recursion of the code: at the end it is (a - e^E b)_+, where a and b are the
   probabilities of all outputs so far under x and x'; where the mechanism may stop, it is the larger
   of (a - e^E b)_+ and the sum of the values behind the outputs of the next block; where it may not, it
   is this sum.

   Theorem stopping:      whatever the rule for when to stop, and for every set S of what was seen,
       Pr(seen under x in S)  <=  value + sum of e^E Pr(seen under x' in S, stopped at price E).
   Theorem attained:      for one rule and one set S these are equal: the value is the least such delta.
   Theorem node_by_node:  if each block is dominated by a pair (order.v), also where the block was
                          chosen after seeing outputs, the value is at most that of the pairs.
   Theorem from_below:    whoever follows one rule, decides by outputs that are merged as one likes, and
                          drops outputs, finds at most the value.

   A rule with coins of its own is an average of rules without, so the first theorem holds for it.

   Source: Hartmann, Bindschaedler, Bentkamp, West 2022, Theorem 15, for pairs with four outputs;
   the code is in src/tightbudget/output_dp/backward_induction.py. *)

From Coq Require Import Reals Lra List Bool Permutation.
From Tightbudget Require Import sums order.
Import ListNotations.
Open Scope R_scope.

Section Stopping.

Variable O : Type.  (* the outputs of a block *)

(* What is still to come: the end at its price; or a block that runs next, unless the mechanism
   stops before it, if it may: then at this price. *)
Inductive run :=
  | End (price : R)
  | Block (may_stop : option R) (outputs : list O) (p q : O -> R) (next : O -> run).

(* What is gained by stopping at a price, where what was seen has the probabilities a and b. *)
Definition payoff (price a b : R) : R := pos (a - exp price * b).

Definition larger (may_stop : option R) (a b going_on : R) : R :=
  match may_stop with None => going_on | Some price => Rmax (payoff price a b) going_on end.

(* backward_induction.py: the recursion of its docstring, times a. *)
Fixpoint value (r : run) (a b : R) : R :=
  match r with
  | End price => payoff price a b
  | Block may_stop outs p q next =>
      larger may_stop a b (sum (fun o => value (next o) (a * p o) (b * q o)) outs)
  end.

(* How a run ended: all outputs that were seen, the price, and their probabilities. *)
Record ending := Ending { seen : list O; paid : R; chance : R; chance' : R }.

Definition after (o : O) (e : ending) : ending :=
  Ending (o :: seen e) (paid e) (chance e) (chance' e).

(* All endings of a run that stops, where it may, if the rule says so of what was seen. *)
Fixpoint endings (r : run) (rule : list O -> bool) (a b : R) : list ending :=
  match r with
  | End price => [Ending [] price a b]
  | Block may_stop outs p q next =>
      let go_on := flat_map (fun o => map (after o)
        (endings (next o) (fun h => rule (o :: h)) (a * p o) (b * q o))) outs in
      match may_stop with
      | None => go_on
      | Some price => if rule [] then [Ending [] price a b] else go_on
      end
  end.

Definition gain (e : ending) : R := chance e - exp (paid e) * chance' e.

Lemma sum_after : forall (f : ending -> R) outs (l : O -> list ending),
  sum f (flat_map (fun o => map (after o) (l o)) outs)
  = sum (fun o => sum (fun e => f (after o e)) (l o)) outs.
Proof. intros. rewrite sum_flat_map. apply sum_ext. intros o _. apply sum_map. Qed.

Lemma gains : forall r rule a b, sum (fun e => pos (gain e)) (endings r rule a b) <= value r a b.
Proof.
  induction r as [price | may_stop outs p q next IH]; intros rule a b.
  - simpl. unfold payoff, gain. simpl. lra.
  - assert (G : sum (fun e => pos (gain e)) (flat_map (fun o => map (after o)
        (endings (next o) (fun h => rule (o :: h)) (a * p o) (b * q o))) outs)
      <= sum (fun o => value (next o) (a * p o) (b * q o)) outs).
    { rewrite sum_after. apply sum_le. intros o _. apply IH. }
    simpl. destruct may_stop as [price |]; simpl; [| exact G].
    destruct (rule []).
    + simpl. rewrite Rplus_0_r. apply Rmax_l.
    + eapply Rle_trans; [exact G | apply Rmax_r].
Qed.

Theorem stopping : forall r rule (S : list O -> bool),
  sum (fun e => when (S (seen e)) (chance e)) (endings r rule 1 1)
  <= value r 1 1
     + sum (fun e => when (S (seen e)) (exp (paid e) * chance' e)) (endings r rule 1 1).
Proof.
  intros r rule S. pose proof (gains r rule 1 1) as G.
  apply Rle_trans with (sum (fun e => pos (gain e)) (endings r rule 1 1)
    + sum (fun e => when (S (seen e)) (exp (paid e) * chance' e)) (endings r rule 1 1)); [| lra].
  rewrite <- sum_plus. apply sum_le. intros e _.
  pose proof (pos_ge (gain e)). pose proof (pos_nonneg (gain e)).
  unfold gain, when in *. destruct (S (seen e)); lra.
Qed.

(* ------------------------------------------------------------------- the rule that attains it *)

Definition at_least (x y : R) : bool := if Rle_dec y x then true else false.

Fixpoint best_rule (r : run) (a b : R) (h : list O) : bool :=
  match r, h with
  | End _, _ => true
  | Block (Some price) outs p q next, [] =>
      at_least (payoff price a b) (sum (fun o => value (next o) (a * p o) (b * q o)) outs)
  | Block None _ _ _ _, [] => false
  | Block _ _ p q next, o :: h => best_rule (next o) (a * p o) (b * q o) h
  end.

Fixpoint best_set (r : run) (a b : R) (h : list O) : bool :=
  match r, h with
  | End price, _ => at_least a (exp price * b)
  | Block (Some price) _ _ _ _, [] => at_least a (exp price * b)
  | Block None _ _ _ _, [] => false
  | Block _ _ p q next, o :: h => best_set (next o) (a * p o) (b * q o) h
  end.

Lemma endings_ext : forall r rule rule' a b, (forall h, rule h = rule' h) ->
  endings r rule a b = endings r rule' a b.
Proof.
  induction r as [price | may_stop outs p q next IH]; intros rule rule' a b E; [reflexivity |].
  assert (F : flat_map (fun o => map (after o)
        (endings (next o) (fun h => rule (o :: h)) (a * p o) (b * q o))) outs
      = flat_map (fun o => map (after o)
        (endings (next o) (fun h => rule' (o :: h)) (a * p o) (b * q o))) outs).
  { apply flat_map_ext. intros o. f_equal. apply IH. intros h. apply E. }
  simpl. rewrite F, E. reflexivity.
Qed.

Lemma at_the_payoff : forall price a b,
  when (at_least a (exp price * b)) (a - exp price * b) = payoff price a b.
Proof.
  intros. unfold payoff, at_least, when. destruct (Rle_dec (exp price * b) a).
  - rewrite pos_of_nonneg; lra.
  - rewrite pos_of_nonpos; lra.
Qed.

Lemma attains : forall r a b,
  sum (fun e => when (best_set r a b (seen e)) (gain e)) (endings r (best_rule r a b) a b)
  = value r a b.
Proof.
  induction r as [price | may_stop outs p q next IH]; intros a b.
  - simpl. unfold gain. simpl. rewrite Rplus_0_r. apply at_the_payoff.
  - assert (G : sum (fun e => when (best_set (Block may_stop outs p q next) a b (seen e)) (gain e))
        (flat_map (fun o => map (after o) (endings (next o)
          (fun h => best_rule (Block may_stop outs p q next) a b (o :: h)) (a * p o) (b * q o))) outs)
      = sum (fun o => value (next o) (a * p o) (b * q o)) outs).
    { rewrite sum_after. apply sum_ext. intros o _.
      rewrite <- (IH o (a * p o) (b * q o)).
      rewrite (endings_ext (next o) _ (best_rule (next o) (a * p o) (b * q o)));
        [| intros h; destruct may_stop; reflexivity].
      apply sum_ext. intros e _. destruct may_stop; reflexivity. }
    destruct may_stop as [price |]; [| exact G].
    cbn [endings]. cbn [best_rule]. cbn [value larger].
    unfold at_least at 1. destruct (Rle_dec _ (payoff price a b)) as [L | L].
    + rewrite Rmax_left by exact L. simpl. unfold gain. simpl. rewrite Rplus_0_r.
      apply at_the_payoff.
    + rewrite Rmax_right by lra. exact G.
Qed.

Theorem attained : forall r, exists rule (S : list O -> bool),
  sum (fun e => when (S (seen e)) (chance e)) (endings r rule 1 1)
  = value r 1 1
    + sum (fun e => when (S (seen e)) (exp (paid e) * chance' e)) (endings r rule 1 1).
Proof.
  intros r. exists (best_rule r 1 1), (best_set r 1 1).
  rewrite <- (attains r 1 1), <- sum_plus. apply sum_ext. intros e _.
  unfold gain, when. destruct (best_set r 1 1 (seen e)); ring.
Qed.

(* --------------------------------------------------------------------- pairs, one after another *)

(* The same with one pair for each block, whatever was seen. *)
Inductive chain :=
  | Last (price : R)
  | Next (may_stop : option R) (block : pair) (then_on : chain).

Fixpoint chain_value (c : chain) (a b : R) : R :=
  match c with
  | Last price => payoff price a b
  | Next may_stop X c =>
      larger may_stop a b (sum (fun o => chain_value c (a * fst o) (b * snd o)) X)
  end.

Fixpoint has_pairs (c : chain) : Prop :=
  match c with Last _ => True | Next _ X c => is_pair X /\ has_pairs c end.

(* The blocks of a run have probabilities, and those of the chain dominate them one by one. *)
Fixpoint within (r : run) (c : chain) : Prop :=
  match r, c with
  | End price, Last price' => price = price'
  | Block may_stop outs p q next, Next may_stop' X c =>
      may_stop = may_stop'
      /\ (forall o, In o outs -> 0 <= p o /\ 0 <= q o)
      /\ dominated (map (fun o => (p o, q o)) outs) X
      /\ forall o, In o outs -> within (next o) c
  | _, _ => False
  end.

Lemma larger_le : forall may_stop a b x y, x <= y -> larger may_stop a b x <= larger may_stop a b y.
Proof.
  intros [price |] a b x y H; simpl; [| exact H].
  apply Rmax_lub; [apply Rmax_l | eapply Rle_trans; [exact H | apply Rmax_r]].
Qed.

Lemma larger_sublinear : forall may_stop phi, sublinear phi ->
  sublinear (fun a b => larger may_stop a b (phi a b)).
Proof.
  intros [price |] phi H; simpl; [| exact H].
  pose proof (delta_sublinear (exp price)) as P. unfold payoff. split.
  - intros c p q C p0 q0. rewrite (homogeneous phi H), (homogeneous _ P) by auto.
    apply RmaxRmult. exact C.
  - intros p q p' q' p0 q0 p0' q0'.
    pose proof (subadditive phi H p q p' q' p0 q0 p0' q0').
    pose proof (subadditive _ P p q p' q' p0 q0 p0' q0'). simpl in *.
    pose proof (Rmax_l (pos (p - exp price * q)) (phi p q)).
    pose proof (Rmax_r (pos (p - exp price * q)) (phi p q)).
    pose proof (Rmax_l (pos (p' - exp price * q')) (phi p' q')).
    pose proof (Rmax_r (pos (p' - exp price * q')) (phi p' q')).
    apply Rmax_lub; lra.
Qed.

(* backward_induction.py: W is convex. *)
Lemma chain_sublinear : forall c, has_pairs c -> sublinear (chain_value c).
Proof.
  induction c as [price | may_stop X c IH]; simpl; intros P.
  - apply delta_sublinear.
  - destruct P as (P & Q). specialize (IH Q). apply larger_sublinear.
    assert (L : forall o, In o X -> sublinear (fun a b => chain_value c (a * fst o) (b * snd o))).
    { intros o Ho. destruct (P o Ho). apply (sublinear_right (chain_value c)); auto. }
    clear P. split.
    + intros k p q K p0 q0. rewrite <- sum_scale. apply sum_ext. intros o Ho.
      apply (homogeneous _ (L o Ho)); auto.
    + intros p q p' q' p0 q0 p0' q0'. rewrite <- sum_plus. apply sum_le. intros o Ho.
      apply (subadditive _ (L o Ho)); auto.
Qed.

Theorem node_by_node : forall r c, has_pairs c -> within r c ->
  forall a b, 0 <= a -> 0 <= b -> value r a b <= chain_value c a b.
Proof.
  induction r as [price | may_stop outs p q next IH]; intros c P W a b A B;
    destruct c as [price' | may_stop' X c]; simpl in W; try contradiction.
  - subst price'. simpl. lra.
  - destruct W as (<- & N & H & W). simpl in *. destruct P as (P & Q).
    apply larger_le.
    apply Rle_trans with (sum (fun o => chain_value c (a * p o) (b * q o)) outs).
    + apply sum_le. intros o Ho. destruct (N o Ho).
      apply IH; auto; apply Rmult_le_pos; auto.
    + specialize (H (fun p q => chain_value c (a * p) (b * q))
        (sublinear_left _ a b (chain_sublinear c Q) A B)).
      unfold divergence in H. rewrite sum_map in H. exact H.
Qed.

(* ------------------------------------------------------------------------------ from below *)

(* backward_induction.py, lower: what is carried from block to block are the probabilities of merged
   outputs; `found c X g` says that g may be found from those in X where c is still to come. *)
Inductive found : chain -> pair -> R -> Prop :=
  | at_the_end price X :
      found (Last price) X (sum (fun o => payoff price (fst o) (snd o)) X)
  | one_block may_stop Y c stop go_on g :
      found c (product go_on Y) g ->
      found (Next may_stop Y c) (stop ++ go_on)
        (sum (fun o => match may_stop with Some e => payoff e (fst o) (snd o) | None => 0 end) stop
         + g)
  | merged c groups g : found c (map total groups) g -> found c (concat groups) g
  | reordered c X Y g : Permutation X Y -> found c X g -> found c Y g
  | dropped c o X g : found c X g -> found c (o :: X) g
  | rounded_down c X g g' : g' <= g -> found c X g -> found c X g'.

Lemma payoff_nonneg : forall price a b, 0 <= payoff price a b.
Proof. intros. apply pos_nonneg. Qed.

Lemma chain_nonneg : forall c a b, 0 <= chain_value c a b.
Proof.
  induction c as [price | may_stop X c IH]; intros a b; simpl; [apply payoff_nonneg |].
  assert (S : 0 <= sum (fun o => chain_value c (a * fst o) (b * snd o)) X).
  { apply sum_nonneg. intros o _. apply IH. }
  destruct may_stop as [price |]; simpl; [| exact S].
  eapply Rle_trans; [exact S | apply Rmax_r].
Qed.

Lemma product_is_pair : forall X Y, is_pair X -> is_pair Y -> is_pair (product X Y).
Proof.
  intros X Y P Q o H. apply in_flat_map in H as (x & Hx & H).
  apply in_map_iff in H as (y & <- & Hy). destruct (P x Hx), (Q y Hy).
  simpl. split; apply Rmult_le_pos; auto.
Qed.

Lemma found_below : forall c X g, found c X g -> has_pairs c -> is_pair X ->
  g <= sum (fun o => chain_value c (fst o) (snd o)) X.
Proof.
  induction 1 as [price X | may_stop Y c stop go_on g F IH | c groups g F IH | c X Y g E F IH
    | c o X g F IH | c X g g' L F IH]; intros P N.
  - simpl. lra.
  - destruct P as (P & Q). rewrite sum_app. apply Rplus_le_compat.
    + apply sum_le. intros o _. destruct may_stop as [price |]; [apply Rmax_l | apply chain_nonneg].
    + assert (G : is_pair go_on) by (intros o Ho; apply N, in_or_app; auto).
      specialize (IH Q (product_is_pair _ _ G P)).
      eapply Rle_trans; [exact IH |]. unfold product. rewrite sum_flat_map.
      apply sum_le. intros o _. rewrite sum_map. simpl.
      destruct may_stop as [price |]; simpl; [apply Rmax_r | lra].
  - assert (G : forall X, In X groups -> is_pair X).
    { intros X HX o Ho. apply N. apply in_concat. exists X. auto. }
    eapply Rle_trans; [apply IH; auto |].
    + intros o Ho. apply in_map_iff in Ho as (X & <- & HX). apply total_nonneg, G, HX.
    + apply (merging groups G (chain_value c) (chain_sublinear c P)).
  - rewrite <- (sum_permuted _ X Y E). apply IH; auto.
    intros o Ho. apply N. apply (Permutation_in o E Ho).
  - simpl. pose proof (chain_nonneg c (fst o) (snd o)).
    assert (g <= sum (fun o => chain_value c (fst o) (snd o)) X); [| lra].
    apply IH; auto. intros o' Ho. apply N. simpl. auto.
  - eapply Rle_trans; [exact L | auto].
Qed.

Theorem from_below : forall c g, has_pairs c -> found c [(1, 1)] g -> g <= chain_value c 1 1.
Proof.
  intros c g P F. apply found_below in F; auto.
  - simpl in F. lra.
  - intros o [<- | []]. simpl. lra.
Qed.

End Stopping.

Print Assumptions stopping.
Print Assumptions attained.
Print Assumptions node_by_node.
Print Assumptions from_below.
