(* The account: budgets, their parts, and runs that several budgets pay for, as the code keeps them.

   IN PLAIN WORDS.  There are budgets, each with a cap on epsilon and on delta; some are parts of
   others.  An analyst opens budgets and parts, reserves, starts, runs, settles, forfeits and voids
   mechanisms, corrects balances, changes caps and closes budgets.  Every act may depend on all
   that was seen before: acts, refusals, outputs, balances.  Reserving holds the price of the worst
   cell in every budget that pays, or in none.  Settling charges the price of the cell that came
   out and frees the rest of epsilon; delta stays.  The analyst stops at any time, and leaves runs
   unsettled at will.

   Theorem balances:       spent + held of a budget is at most its cap, always.
   Theorem nothing_lost:   what is spent and held is at least the sum of the charges of all runs, and
                           of all that parts of the budget hold or took.
   Theorem never_settled:  a run that was not settled is charged its worst-case price.
   Theorem delta_stays_charged: a run's delta stays charged, whatever came out.
   Theorem account_private: all that the analyst sees is (epsilon, delta)-DP at the cap of a budget,
                           for data sets between which every mechanism keeps its promise at the
                           price that this budget and its parts are charged.  It holds for each of
                           several budgets that pay for one run, each with its own data sets.
   Theorem account_both_directions: so it is in both directions, for neighbours in both directions.
   Theorem one_budget:     the theorem for one budget alone, without parts, in memory.
   Theorem fitting_is_reserved: what fits into what is left is not refused for its price (so the
                           theorems above do not hold for want of anything that runs).

   `slack` is 1 in memory.  The ledger grants a request that is larger than what is left by at most
   one part in 10^9: then slack is 1 + 10^-9, the guarantee for a caller who runs it all the same.

   How the model follows the code (src/tightbudget/output_dp/account.py, filter.py and
   src/tightbudget/ledger/transactions.py) stands beside each act.  Lines marked CALLER are what
   the code cannot check: it believes the caller. *)

From Coq Require Import Reals Lra Lia List Bool PeanoNat.
From Tightbudget Require Import sums filter.
Import ListNotations.
Open Scope R_scope.

Inductive coordinate := Epsilon | Delta.

(* A price, a balance or a cap: two numbers that are compared component by component. *)
Definition amount := coordinate -> R.

(* ---------------------------------------------------------------------- a guarantee *)

Section Guarantee.
Context {C : Type}.

(* guarantee.py, OutputDP: the cells that are listed with their prices, a price for every other
   cell which is at least every price listed, and one delta for all. *)
Record guarantee := Guarantee {
  listed : C -> option R;
  supremum : R;
  guaranteed_delta : R;
  listed_range : forall c e, listed c = Some e -> 0 <= e <= supremum;
  supremum_nonneg : 0 <= supremum;
  delta_nonneg : 0 <= guaranteed_delta }.

(* guarantee.py, OutputDP.price: an undeclared cell costs the sup. *)
Definition price_of (g : guarantee) (c : C) : R :=
  match listed g c with Some e => e | None => supremum g end.

(* pricing.py, OutputDPOdometerRule.cost: None stands for the worst case. *)
Definition cost (g : guarantee) (c : option C) : amount := fun k =>
  match k with
  | Epsilon => match c with None => supremum g | Some c => price_of g c end
  | Delta => guaranteed_delta g
  end.

Lemma cost_range : forall g c k, 0 <= cost g c k <= cost g None k.
Proof.
  intros g c k. pose proof (supremum_nonneg g). pose proof (delta_nonneg g).
  destruct k, c as [c |]; simpl; try lra.
  unfold price_of. destruct (listed g c) as [e |] eqn:E; [| lra].
  apply (listed_range g c e E).
Qed.
End Guarantee.
Arguments guarantee : clear implicits.

(* ------------------------------------------------------------------------ the account *)

Section Account.

Variable D : Type.  (* data sets *)
Variable O : Type.  (* outputs *)
Variable C : Type.  (* cells of outputs *)
Variable M : Type.  (* the mechanisms that there are to choose from *)
Variable B : Type.  (* names of budgets *)

Variable cell_eq_dec : forall c c' : C, {c = c'} + {c <> c'}.
Variable budget_eq_dec : forall b b' : B, {b = b'} + {b <> b'}.
Variable all : list B.
Variable all_distinct : NoDup all.
Variable all_listed : forall b, In b all.
Variable parent : B -> option B.
Variable parent_is_another : forall b, parent b <> Some b.

(* A mechanism: outputs, probabilities, cells, and its guarantee for each budget that pays. *)
Variable outputs_of : M -> list O.
Variable prob_of : M -> D -> O -> R.
Variable cell_of : M -> O -> C.
Variable guarantee_for : M -> B -> option (guarantee C).

Variable slack : R.
Variable slack_at_least_one : 1 <= slack.

(* No cap is ever set above this. *)
Variable limit : B -> amount.
Variable limit_nonneg : forall b k, 0 <= limit b k.

Definition pays (m : M) (b : B) : bool :=
  match guarantee_for m b with Some _ => true | None => false end.

(* The price of an output in a cell, or the worst-case price, in a budget. *)
Definition charge (m : M) (c : option C) (b : B) : amount := fun k =>
  match guarantee_for m b with Some g => cost g c k | None => 0 end.

Lemma charge_range : forall m c b k, 0 <= charge m c b k <= charge m None b k.
Proof.
  intros. unfold charge. destruct (guarantee_for m b); [apply cost_range | lra].
Qed.

Inductive hold_state := Reserved | Started | Settled | Forfeited | Voided.

(* A hold: the mechanism, its state, what it takes from each budget, and the output, if it ran.
   The code does not know the output: it is what the caller knows. *)
Record hold := Hold {
  mechanism : M;
  status : hold_state;
  charged : B -> amount;
  seen : option O }.

Definition is_open (h : hold) : bool :=
  match status h with Reserved | Started => true | _ => false end.

(* The states in which a hold takes its worst-case price. *)
Definition takes_worst (h : hold) : bool :=
  match status h with Reserved | Started | Forfeited => true | _ => false end.

Inductive phase := Unopened | Open | Closed.

(* `size` of a budget: its cap; once it is closed, what its whole keeps for it. *)
Record state := State {
  size : B -> amount;
  spent : B -> amount;
  held : B -> amount;
  phase_of : B -> phase;
  holds : list hold }.

Inductive act :=
  | OpenBudget (b : B) (cap : amount)
  | Reserve (m : M)
  | Start (i : nat)
  | RunIt (i : nat)
  | Settle (i : nat) (c : C)
  | Forfeit (i : nat)
  | Void (i : nat)
  | Close (b : B) (delta_stays : bool)
  | ChangeCap (b : B) (cap : amount)
  | Correct (b : B) (more : amount).

Inductive answer := Done | Refused | Output (o : O).

Definition transcript := list (act * answer).

(* Further reasons to refuse an act, of whatever kind: keys, tokens, interactive mechanisms. *)
Variable else_refused : transcript -> act -> bool.

(* -------------------------------------------------------------------- deciding by balances *)

Definition le (x y : R) : bool := if Rle_dec x y then true else false.

Lemma le_true : forall x y, le x y = true -> x <= y.
Proof. intros x y. unfold le. destruct (Rle_dec x y); [auto | discriminate]. Qed.

Definition fits (a a' : amount) : bool := le (a Epsilon) (a' Epsilon) && le (a Delta) (a' Delta).

Lemma fits_true : forall a a', fits a a' = true -> forall k, a k <= a' k.
Proof.
  intros a a' H k. apply andb_true_iff in H as (H & H').
  destruct k; apply le_true; assumption.
Qed.

(* account.py, Account._left; guard held-is-not-left. *)
Definition left_ (s : state) (b : B) : amount := fun k => size s b k - spent s b k - held s b k.

Definition in_phase (p : phase) (s : state) (b : B) : bool :=
  match p, phase_of s b with
  | Unopened, Unopened | Open, Open | Closed, Closed => true
  | _, _ => false
  end.

Lemma in_phase_true : forall p s b, in_phase p s b = true -> phase_of s b = p.
Proof. intros p s b. unfold in_phase. destruct p, (phase_of s b); congruence. Qed.

Definition child (q b : B) : bool :=
  match parent q with
  | Some p => if budget_eq_dec p b then true else false
  | None => false
  end.

Lemma child_true : forall q b, child q b = true <-> parent q = Some b.
Proof.
  intros q b. unfold child. destruct (parent q) as [p |].
  - destruct (budget_eq_dec p b) as [-> | N]; split; congruence.
  - split; discriminate.
Qed.

Lemma child_other : forall b, child b b = false.
Proof.
  intros b. destruct (child b b) eqn:E; auto.
  apply child_true in E. destruct (parent_is_another b E).
Qed.

(* A function of budgets with the value at one budget replaced. *)
Definition set {V : Type} (f : B -> V) (b : B) (v : V) : B -> V :=
  fun b' => if budget_eq_dec b' b then v else f b'.

Lemma set_same : forall {V : Type} (f : B -> V) b v, set f b v b = v.
Proof. intros. unfold set. destruct (budget_eq_dec b b); congruence. Qed.

Lemma set_other : forall {V : Type} (f : B -> V) b v b', b' <> b -> set f b v b' = f b'.
Proof. intros. unfold set. destruct (budget_eq_dec b' b); congruence. Qed.

Definition plus (a a' : amount) : amount := fun k => a k + a' k.
Definition minus (a a' : amount) : amount := fun k => a k - a' k.
Definition zero : amount := fun _ => 0.

(* The amount at the parent of b, and nothing at every other budget. *)
Definition at_parent (b : B) (a : amount) : B -> amount :=
  fun b' => if child b b' then a else zero.

Definition everywhere (f g : B -> amount) : B -> amount := fun b => plus (f b) (g b).

(* ------------------------------------------------------------------------------ the acts *)

(* account.py, reserve; transactions.py, _refusal and _hold: the worst-case price is held by all
   payers or by none; where it is within the slack of what is left, what is left. *)
Definition affordable (s : state) (m : M) : bool :=
  forallb (fun b => if pays m b
    then in_phase Open s b && fits (charge m None b) (fun k => slack * left_ s b k)
    else true) all.

Definition granted (s : state) (m : M) : B -> amount := fun b k =>
  if pays m b then Rmin (charge m None b k) (left_ s b k) else 0.

Definition reserve (s : state) (m : M) : option state :=
  if affordable s m
  then Some (State (size s) (spent s) (everywhere (held s) (granted s m)) (phase_of s)
                   (holds s ++ [Hold m Reserved (granted s m) None]))
  else None.

Definition with_hold (s : state) (i : nat) (h : hold) : state :=
  State (size s) (spent s) (held s) (phase_of s) (replace i h (holds s)).

(* account.py, Hold.start: guard hold-started-once. *)
Definition start (s : state) (i : nat) : option state :=
  match nth_error (holds s) i with
  | Some (Hold m Reserved a o) => Some (with_hold s i (Hold m Started a o))
  | _ => None
  end.

(* account.py, Account._exchanged; unit_of_work.py, Act.end: the charge is spent in place of what
   was held. *)
Definition end_ (s : state) (i : nat) (h : hold) (to : hold_state) (a : B -> amount) : state :=
  State (size s) (everywhere (spent s) a)
        (fun b => minus (held s b) (charged h b)) (phase_of s)
        (replace i (Hold (mechanism h) to a (seen h)) (holds s)).

(* transactions.py, settle: guards no-more-than-held and delta-stays. *)
Definition settled_charge (h : hold) (c : C) : B -> amount := fun b k =>
  match k with
  | Epsilon => Rmin (charge (mechanism h) (Some c) b Epsilon) (charged h b Epsilon)
  | Delta => charged h b Delta
  end.

(* CALLER: a run is settled with the cell that its output is in. *)
Definition cell_is_true (h : hold) (c : C) : bool :=
  match seen h with
  | None => true
  | Some o => if cell_eq_dec c (cell_of (mechanism h) o) then true else false
  end.

Definition settle (s : state) (i : nat) (c : C) : option state :=
  match nth_error (holds s) i with
  | Some h => if is_open h && cell_is_true h c
              then Some (end_ s i h Settled (settled_charge h c)) else None
  | None => None
  end.

Definition forfeit (s : state) (i : nat) : option state :=
  match nth_error (holds s) i with
  | Some h => if is_open h then Some (end_ s i h Forfeited (charged h)) else None
  | None => None
  end.

(* Guard started-not-void.  CALLER: what did run is not voided. *)
Definition void (s : state) (i : nat) : option state :=
  match nth_error (holds s) i with
  | Some (Hold m Reserved a None as h) => Some (end_ s i h Voided (fun _ => zero))
  | _ => None
  end.

(* CALLER: a reservation runs once, before it is settled or void.  It may run after it was
   forfeited: an administrator may forfeit what is running. *)
Definition runnable (s : state) (i : nat) : option hold :=
  match nth_error (holds s) i with
  | Some h => match takes_worst h, seen h with true, None => Some h | _, _ => None end
  | None => None
  end.

Definition ran (s : state) (i : nat) (h : hold) (o : O) : state :=
  with_hold s i (Hold (mechanism h) (status h) (charged h) (Some o)).

(* filter.py, _join; transactions.py, open_budget: the whole holds all of the part. *)
Definition parent_affords (s : state) (b : B) (a : amount) : bool :=
  match parent b with
  | None => true
  | Some p => in_phase Open s p && fits a (left_ s p)
  end.

Definition open_budget (s : state) (b : B) (cap : amount) : option state :=
  if in_phase Unopened s b && fits zero cap && fits cap (limit b) && parent_affords s b cap
  then Some (State (set (size s) b cap) (spent s) (everywhere (held s) (at_parent b cap))
                   (set (phase_of s) b Open) (holds s))
  else None.

(* filter.py, close (delta_stays = false); transactions.py, close_budget (delta_stays = true):
   guards part-run-stays-open, part-closed-once and part-returns-no-delta. *)
Definition kept (s : state) (b : B) (delta_stays : bool) : amount := fun k =>
  match k with
  | Epsilon => spent s b Epsilon
  | Delta => if delta_stays then size s b Delta else spent s b Delta
  end.

Definition has_no_holder (s : state) (b : B) : bool :=
  forallb (fun h => negb (is_open h && pays (mechanism h) b)) (holds s)
  && forallb (fun q => negb (child q b && in_phase Open s q)) all.

Definition close (s : state) (b : B) (delta_stays : bool) : option state :=
  if in_phase Open s b && has_no_holder s b
  then Some (State (set (size s) b (kept s b delta_stays))
                   (everywhere (spent s) (at_parent b (kept s b delta_stays)))
                   (fun b' => minus (held s b') (at_parent b (size s b) b'))
                   (set (phase_of s) b Closed) (holds s))
  else None.

(* transactions.py, change_cap: guards cap-covers-spent, larger-part-fits-into-whole and
   smaller-part-returns-no-delta. *)
Definition growth (s : state) (b : B) (cap : amount) : amount := fun k =>
  Rmax 0 (cap k - size s b k).

Definition delta_gone (s : state) (b : B) (cap : amount) : amount := fun k =>
  match k with Epsilon => 0 | Delta => Rmax 0 (size s b Delta - cap Delta) end.

Definition change_cap (s : state) (b : B) (cap : amount) : option state :=
  if in_phase Open s b && fits (plus (spent s b) (held s b)) cap && fits cap (limit b)
     && parent_affords s b (growth s b cap)
  then Some (State (set (size s) b cap)
                   (everywhere (spent s) (at_parent b (delta_gone s b cap)))
                   (everywhere (held s) (at_parent b (minus cap (size s b))))
                   (phase_of s) (holds s))
  else None.

(* transactions.py, correct: adds to what is spent, never takes any off. *)
Definition correct (s : state) (b : B) (more : amount) : option state :=
  if in_phase Open s b && fits zero more && fits more (left_ s b)
  then Some (State (size s) (set (spent s) b (plus (spent s b) more)) (held s)
                   (phase_of s) (holds s))
  else None.

(* The state after an act that shows no output; None if it is refused. *)
Definition step (s : state) (a : act) : option state :=
  match a with
  | OpenBudget b cap => open_budget s b cap
  | Reserve m => reserve s m
  | Start i => start s i
  | RunIt _ => None
  | Settle i c => settle s i c
  | Forfeit i => forfeit s i
  | Void i => void s i
  | Close b delta_stays => close s b delta_stays
  | ChangeCap b cap => change_cap s b cap
  | Correct b more => correct s b more
  end.

Definition nothing : state :=
  State (fun _ => zero) (fun _ => zero) (fun _ => zero) (fun _ => Unopened) [].

Inductive reachable : state -> Prop :=
  | at_first : reachable nothing
  | by_step s a s' : reachable s -> step s a = Some s' -> reachable s'
  | by_run s i h o : reachable s -> runnable s i = Some h -> reachable (ran s i h o).

(* ---------------------------------------------------------------------------- invariants *)

Definition open_part (s : state) (b q : B) : bool := child q b && in_phase Open s q.
Definition closed_part (s : state) (b q : B) : bool := child q b && in_phase Closed s q.

Definition held_by_runs (s : state) (b : B) : amount := fun k =>
  sum (fun h => when (is_open h) (charged h b k)) (holds s).
Definition held_by_parts (s : state) (b : B) : amount := fun k =>
  sum (fun q => when (open_part s b q) (size s q k)) all.
Definition spent_by_runs (s : state) (b : B) : amount := fun k =>
  sum (fun h => when (negb (is_open h)) (charged h b k)) (holds s).
Definition spent_by_parts (s : state) (b : B) : amount := fun k =>
  sum (fun q => when (closed_part s b q) (size s q k)) all.

(* A hold takes enough: its worst case while it may still run, and the price of its output. *)
Definition enough (h : hold) : Prop := forall b k,
  0 <= charged h b k
  /\ (pays (mechanism h) b = false -> charged h b k = 0)
  /\ (takes_worst h = true -> charge (mechanism h) None b k <= slack * charged h b k)
  /\ (forall o, seen h = Some o ->
      charge (mechanism h) (Some (cell_of (mechanism h) o)) b k <= slack * charged h b k).

Record invariant (s : state) : Prop := Invariant {
  i_held : forall b k, held s b k = held_by_runs s b k + held_by_parts s b k;
  i_spent : forall b k, spent_by_runs s b k + spent_by_parts s b k <= spent s b k;
  i_cap : forall b k, spent s b k + held s b k <= size s b k;
  i_limit : forall b k, size s b k <= limit b k;
  i_size : forall b k, 0 <= size s b k;
  i_unopened : forall b k, phase_of s b = Unopened -> size s b k = 0;
  i_holds : forall h, In h (holds s) -> enough h }.

(* Sums over parts change at one part b alone, and only for its parent. *)
Lemma parts_changed : forall (f g : B -> B -> R) b,
  (forall b' q, q <> b -> f b' q = g b' q) -> (forall b', child b b' = false -> f b' b = g b' b) ->
  forall b', sum (g b') all = sum (f b') all + when (child b b') (g b' b - f b' b).
Proof.
  intros f g b H K b'.
  rewrite (sum_changed_at (f b') (g b') b all); auto.
  destruct (child b b') eqn:E; simpl; [lra |]. rewrite (K b' E). lra.
Qed.

Lemma at_parent_when : forall b b' a k, at_parent b a b' k = when (child b b') (a k).
Proof. intros. unfold at_parent, when, zero. destruct (child b b'); reflexivity. Qed.

Lemma in_phase_set_other : forall p s b q v sz sp he ho,
  q <> b -> in_phase p (State sz sp he (set (phase_of s) b v) ho) q = in_phase p s q.
Proof. intros. unfold in_phase. simpl. rewrite set_other; auto. Qed.

Lemma in_phase_set_same : forall p s b v sz sp he ho,
  in_phase p (State sz sp he (set (phase_of s) b v) ho) b
  = match p, v with Unopened, Unopened | Open, Open | Closed, Closed => true | _, _ => false end.
Proof. intros. unfold in_phase. simpl. rewrite set_same. reflexivity. Qed.

Lemma nothing_invariant : invariant nothing.
Proof.
  assert (Z : forall f : B -> bool, sum (fun q => when (f q) 0) all = 0).
  { intros. rewrite (sum_ext _ (fun _ => 0)).
    - apply sum_zero.
    - intros q _. unfold when. destruct (f q); reflexivity. }
  constructor; intros; simpl; unfold zero in *.
  - unfold held_by_runs, held_by_parts. simpl. unfold zero. rewrite Z. lra.
  - unfold spent_by_runs, spent_by_parts. simpl. unfold zero. rewrite Z. lra.
  - lra.
  - apply limit_nonneg.
  - lra.
  - reflexivity.
  - contradiction.
Qed.

Lemma left_nonneg : forall s b k, invariant s -> 0 <= left_ s b k.
Proof. intros s b k I. pose proof (i_cap s I b k). unfold left_. lra. Qed.

Lemma spent_nonneg : forall s b k, invariant s -> 0 <= spent s b k.
Proof.
  intros s b k I. eapply Rle_trans; [| apply (i_spent s I)].
  unfold spent_by_runs, spent_by_parts. apply Rplus_le_le_0_compat; apply sum_nonneg; intros a H.
  - unfold when. destruct (negb (is_open a)); [apply (i_holds s I a H) | lra].
  - unfold when. destruct (closed_part s b a); [apply (i_size s I) | lra].
Qed.

Lemma held_nonneg : forall s b k, invariant s -> 0 <= held s b k.
Proof.
  intros s b k I. rewrite (i_held s I).
  unfold held_by_runs, held_by_parts. apply Rplus_le_le_0_compat; apply sum_nonneg; intros a H.
  - unfold when. destruct (is_open a); [apply (i_holds s I a H) | lra].
  - unfold when. destruct (open_part s b a); [apply (i_size s I) | lra].
Qed.

(* Replacing one hold by another of the same charges changes no sum. *)
Lemma with_hold_invariant : forall s i h h', invariant s ->
  nth_error (holds s) i = Some h ->
  is_open h' = is_open h -> charged h' = charged h -> enough h' ->
  invariant (with_hold s i h').
Proof.
  intros s i h h' I N Ho Hc E.
  constructor; simpl; intros.
  - rewrite (i_held s I). f_equal.
    unfold held_by_runs, with_hold; simpl. rewrite (sum_replace _ i h' h) by auto.
    rewrite Ho, Hc. ring.
  - apply Rle_trans with (spent_by_runs s b k + spent_by_parts s b k); [| apply (i_spent s I)].
    apply Req_le. f_equal.
    unfold spent_by_runs, with_hold; simpl. rewrite (sum_replace _ i h' h) by auto.
    rewrite Ho, Hc. ring.
  - apply (i_cap s I).
  - apply (i_limit s I).
  - apply (i_size s I).
  - apply (i_unopened s I); auto.
  - apply In_replace in H as [-> | H]; auto. apply (i_holds s I); auto.
Qed.

(* Ending a hold at a charge that is at most what it holds. *)
Lemma end_invariant : forall s i h to a, invariant s ->
  nth_error (holds s) i = Some h -> is_open h = true ->
  match to with Reserved | Started => False | _ => True end ->
  (forall b k, a b k <= charged h b k) ->
  enough (Hold (mechanism h) to a (seen h)) ->
  invariant (end_ s i h to a).
Proof.
  intros s i h to a I N Ho T L E.
  assert (Hn : is_open (Hold (mechanism h) to a (seen h)) = false).
  { unfold is_open. simpl. destruct to; auto; contradiction. }
  constructor; simpl; intros.
  - unfold minus. rewrite (i_held s I).
    unfold held_by_runs, held_by_parts, open_part, in_phase; simpl.
    rewrite (sum_replace _ i _ h) by auto. rewrite Hn, Ho. simpl. ring.
  - unfold everywhere, plus. pose proof (i_spent s I b k) as P.
    unfold spent_by_runs, spent_by_parts, closed_part, in_phase in *; simpl in *.
    rewrite (sum_replace _ i _ h) by auto. rewrite Hn, Ho. simpl. lra.
  - unfold everywhere, plus, minus. pose proof (i_cap s I b k). specialize (L b k). lra.
  - apply (i_limit s I).
  - apply (i_size s I).
  - apply (i_unopened s I); auto.
  - apply In_replace in H as [-> | H]; auto. apply (i_holds s I); auto.
Qed.

Lemma reserve_invariant : forall s m s', invariant s -> reserve s m = Some s' -> invariant s'.
Proof.
  intros s m s' I H. unfold reserve in H. destruct (affordable s m) eqn:A; [| discriminate].
  injection H as <-.
  assert (G : forall b k, 0 <= granted s m b k <= left_ s b k).
  { intros b k. unfold granted. pose proof (left_nonneg s b k I).
    destruct (pays m b); [| lra]. pose proof (charge_range m None b k).
    split; [apply Rmin_glb; lra | apply Rmin_r]. }
  constructor; simpl; intros.
  - unfold everywhere, plus. rewrite (i_held s I).
    unfold held_by_runs, held_by_parts, open_part, in_phase; simpl.
    rewrite sum_app. simpl. ring.
  - pose proof (i_spent s I b k) as P.
    unfold spent_by_runs, spent_by_parts, closed_part, in_phase in *; simpl in *.
    rewrite sum_app. simpl. lra.
  - unfold everywhere, plus. specialize (G b k). unfold left_ in G. lra.
  - apply (i_limit s I).
  - apply (i_size s I).
  - apply (i_unopened s I); auto.
  - apply in_app_or in H as [H | [<- | []]]; [apply (i_holds s I); auto |].
    intros b k. simpl. specialize (G b k). unfold granted in *.
    destruct (pays m b) eqn:P.
    + split; [lra |]. split; [discriminate |]. split; [| discriminate].
      intros _.
      unfold affordable in A. rewrite forallb_forall in A. specialize (A b (all_listed b)).
      rewrite P in A. apply andb_true_iff in A as (_ & A).
      pose proof (fits_true _ _ A k) as F. cbv beta in F.
      pose proof (charge_range m None b k).
      unfold Rmin. destruct (Rle_dec _ _); [nra | exact F].
    + split; [lra |]. split; [reflexivity |]. split; [| discriminate].
      intros _. unfold charge, pays in *. destruct (guarantee_for m b); [discriminate | lra].
Qed.

Lemma settle_invariant : forall s i c s', invariant s -> settle s i c = Some s' -> invariant s'.
Proof.
  intros s i c s' I H. unfold settle in H.
  destruct (nth_error (holds s) i) as [h |] eqn:N; [| discriminate].
  destruct (is_open h) eqn:Ho; [| discriminate].
  destruct (cell_is_true h c) eqn:T; [| discriminate].
  simpl in H. injection H as <-.
  pose proof (i_holds s I h (nth_error_In _ _ N)) as E.
  apply end_invariant; auto.
  - intros b k. unfold settled_charge. destruct k; [apply Rmin_r | lra].
  - intros b k. specialize (E b k). destruct E as (E0 & E1 & E2 & E3). simpl.
    pose proof (charge_range (mechanism h) (Some c) b Epsilon).
    split; [| split; [| split]].
    + unfold settled_charge. destruct k; [apply Rmin_glb; lra | lra].
    + intros P. unfold settled_charge. destruct k; [| auto].
      rewrite (E1 P). unfold charge, pays in *.
      destruct (guarantee_for (mechanism h) b); [discriminate |]. apply Rmin_left. lra.
    + discriminate.
    + intros o S. specialize (E3 o S). unfold settled_charge.
      unfold cell_is_true in T. rewrite S in T.
      destruct (cell_eq_dec c (cell_of (mechanism h) o)) as [-> | ]; [| discriminate].
      destruct k; [| exact E3].
      unfold Rmin. destruct (Rle_dec _ _); nra.
Qed.

Lemma forfeit_invariant : forall s i s', invariant s -> forfeit s i = Some s' -> invariant s'.
Proof.
  intros s i s' I H. unfold forfeit in H.
  destruct (nth_error (holds s) i) as [h |] eqn:N; [| discriminate].
  destruct (is_open h) eqn:Ho; [| discriminate].
  injection H as <-.
  pose proof (i_holds s I h (nth_error_In _ _ N)) as E.
  apply end_invariant; auto.
  - intros. lra.
  - intros b k. destruct (E b k) as (E0 & E1 & E2 & E3). simpl.
    repeat split; auto. intros _. apply E2.
    unfold takes_worst. unfold is_open in Ho. destruct (status h); auto; discriminate.
Qed.

Lemma void_invariant : forall s i s', invariant s -> void s i = Some s' -> invariant s'.
Proof.
  intros s i s' I H. unfold void in H.
  destruct (nth_error (holds s) i) as [h |] eqn:N; [| discriminate].
  destruct h as [m st a [o |]], st; try discriminate.
  injection H as <-.
  pose proof (i_holds s I _ (nth_error_In _ _ N)) as E.
  apply end_invariant; auto.
  - intros b k. apply (E b k).
  - intros b k. simpl. unfold zero. repeat split; try lra; try discriminate.
Qed.

Lemma start_invariant : forall s i s', invariant s -> start s i = Some s' -> invariant s'.
Proof.
  intros s i s' I H. unfold start in H.
  destruct (nth_error (holds s) i) as [h |] eqn:N; [| discriminate].
  destruct h as [m st a o], st; try discriminate.
  injection H as <-.
  apply (with_hold_invariant s i _ _ I N); auto.
  pose proof (i_holds s I _ (nth_error_In _ _ N)) as E.
  intros b k. apply (E b k).
Qed.

Lemma ran_invariant : forall s i h o, invariant s -> runnable s i = Some h ->
  invariant (ran s i h o).
Proof.
  intros s i h o I H. unfold runnable in H.
  destruct (nth_error (holds s) i) as [h' |] eqn:N; [| discriminate].
  destruct (takes_worst h') eqn:T; [| discriminate].
  destruct (seen h') eqn:S; [discriminate |]. injection H as ->.
  apply (with_hold_invariant s i _ _ I N); auto.
  pose proof (i_holds s I _ (nth_error_In _ _ N)) as E.
  intros b k. destruct (E b k) as (E0 & E1 & E2 & E3). simpl.
  repeat split; auto.
  intros o' _. eapply Rle_trans; [apply charge_range | auto].
Qed.

Lemma parent_left : forall s b a b', parent_affords s b a = true -> child b b' = true ->
  forall k, a k <= left_ s b' k.
Proof.
  intros s b a b' H K. apply child_true in K. unfold parent_affords in H. rewrite K in H.
  apply andb_true_iff in H as (_ & H). apply fits_true. exact H.
Qed.

Lemma open_invariant : forall s b cap s', invariant s ->
  open_budget s b cap = Some s' -> invariant s'.
Proof.
  intros s b cap s' I H. unfold open_budget in H.
  destruct (in_phase Unopened s b) eqn:U; [| discriminate].
  destruct (fits zero cap) eqn:Z; [| discriminate].
  destruct (fits cap (limit b)) eqn:L; [| discriminate].
  destruct (parent_affords s b cap) eqn:P; [| discriminate].
  simpl in H. injection H as <-.
  pose proof (in_phase_true _ _ _ U) as U'.
  pose proof (fits_true _ _ Z) as Z'. pose proof (fits_true _ _ L) as L'. unfold zero in Z'.
  constructor; simpl; intros.
  - unfold everywhere, plus. rewrite at_parent_when, (i_held s I).
    unfold held_by_runs, held_by_parts. simpl.
    rewrite (parts_changed
      (fun b' q => when (open_part s b' q) (size s q k))
      (fun b' q => when (open_part (State (set (size s) b cap) (spent s)
         (fun b0 => fun k0 => held s b0 k0 + at_parent b cap b0 k0)
         (set (phase_of s) b Open) (holds s)) b' q) (set (size s) b cap q k)) b).
    + unfold open_part. rewrite in_phase_set_same, set_same.
      unfold in_phase. rewrite U', andb_false_r, andb_true_r.
      unfold when. destruct (child b b0); lra.
    + intros b' q Q. unfold open_part. rewrite in_phase_set_other, set_other; auto.
    + intros b' Q. unfold open_part. rewrite Q. reflexivity.
  - pose proof (i_spent s I b0 k) as Q.
    eapply Rle_trans; [| exact Q]. apply Req_le.
    unfold spent_by_runs, spent_by_parts. simpl. f_equal.
    apply sum_ext. intros q _. destruct (budget_eq_dec q b) as [-> | D0].
    + unfold closed_part. rewrite in_phase_set_same. unfold in_phase. rewrite U'.
      rewrite !andb_false_r. reflexivity.
    + unfold closed_part. rewrite in_phase_set_other, set_other; auto.
  - unfold everywhere, plus. rewrite at_parent_when. pose proof (i_cap s I b0 k) as Q.
    destruct (budget_eq_dec b0 b) as [-> | D0].
    + rewrite set_same, child_other. simpl. rewrite (i_unopened s I b k U') in Q.
      specialize (Z' k). lra.
    + rewrite set_other by auto. unfold when. destruct (child b b0) eqn:K; [| lra].
      pose proof (parent_left s b cap b0 P K k) as F. unfold left_ in F. lra.
  - destruct (budget_eq_dec b0 b) as [-> | D0].
    + rewrite set_same. apply L'.
    + rewrite set_other by auto. apply (i_limit s I).
  - destruct (budget_eq_dec b0 b) as [-> | D0].
    + rewrite set_same. apply Z'.
    + rewrite set_other by auto. apply (i_size s I).
  - destruct (budget_eq_dec b0 b) as [-> | D0].
    + rewrite set_same in H. discriminate.
    + rewrite (set_other _ _ _ _ D0) in H. rewrite (set_other _ _ _ _ D0). apply (i_unopened s I); auto.
  - apply (i_holds s I); auto.
Qed.

(* A budget without holders holds nothing. *)
Lemma no_holder : forall s b k, invariant s -> has_no_holder s b = true -> held s b k = 0.
Proof.
  intros s b k I H. apply andb_true_iff in H as (H & H').
  rewrite forallb_forall in H, H'.
  rewrite (i_held s I). unfold held_by_runs, held_by_parts.
  rewrite (sum_ext _ (fun _ => 0) (holds s)), (sum_ext _ (fun _ => 0) all).
  - rewrite !sum_zero. lra.
  - intros q Q. specialize (H' q Q). unfold open_part.
    destruct (child q b && in_phase Open s q); [discriminate | reflexivity].
  - intros h Q. specialize (H h Q). destruct (is_open h); [| reflexivity]. simpl in *.
    apply (i_holds s I h Q b k). destruct (pays (mechanism h) b); auto; discriminate.
Qed.

Lemma close_invariant : forall s b stays s', invariant s -> close s b stays = Some s' ->
  invariant s'.
Proof.
  intros s b stays s' I H. unfold close in H.
  destruct (in_phase Open s b) eqn:U; [| discriminate].
  destruct (has_no_holder s b) eqn:N; [| discriminate].
  simpl in H. injection H as <-.
  pose proof (in_phase_true _ _ _ U) as U'.
  pose proof (no_holder s b) as Z.
  assert (K : forall k, spent s b k <= kept s b stays k <= size s b k).
  { intros k. pose proof (i_cap s I b k) as Q. rewrite (Z k I N) in Q.
    destruct k; simpl; [lra |]. destruct stays; lra. }
  constructor; simpl; intros.
  - unfold minus. rewrite at_parent_when, (i_held s I).
    unfold held_by_runs, held_by_parts. simpl.
    rewrite (parts_changed
      (fun b' q => when (open_part s b' q) (size s q k))
      (fun b' q => when (open_part (State (set (size s) b (kept s b stays)) 
         (everywhere (spent s) (at_parent b (kept s b stays)))
         (fun b' => minus (held s b') (at_parent b (size s b) b'))
         (set (phase_of s) b Closed) (holds s)) b' q) (set (size s) b (kept s b stays) q k)) b).
    + unfold open_part. rewrite in_phase_set_same. rewrite U, andb_false_r, andb_true_r.
      unfold when. destruct (child b b0); lra.
    + intros b' q Q. unfold open_part. rewrite in_phase_set_other, set_other; auto.
    + intros b' Q. unfold open_part. rewrite Q. reflexivity.
  - unfold everywhere, plus. rewrite at_parent_when. pose proof (i_spent s I b0 k) as Q.
    unfold spent_by_runs, spent_by_parts in *. simpl.
    rewrite (parts_changed
      (fun b' q => when (closed_part s b' q) (size s q k))
      (fun b' q => when (closed_part (State (set (size s) b (kept s b stays)) 
         (everywhere (spent s) (at_parent b (kept s b stays)))
         (fun b' => minus (held s b') (at_parent b (size s b) b'))
         (set (phase_of s) b Closed) (holds s)) b' q) (set (size s) b (kept s b stays) q k)) b).
    + assert (F : in_phase Closed s b = false) by (unfold in_phase; rewrite U'; reflexivity).
      unfold closed_part, when in *. rewrite in_phase_set_same, set_same.
      rewrite F, andb_false_r, andb_true_r. destruct (child b b0); lra.
    + intros b' q D0. unfold closed_part. rewrite in_phase_set_other, set_other; auto.
    + intros b' D0. unfold closed_part. rewrite D0. reflexivity.
  - unfold everywhere, plus, minus. rewrite !at_parent_when. pose proof (i_cap s I b0 k) as Q.
    specialize (K k).
    destruct (budget_eq_dec b0 b) as [-> | D0].
    + rewrite set_same, child_other. simpl. rewrite (Z k I N). lra.
    + rewrite set_other by auto. unfold when. destruct (child b b0); lra.
  - destruct (budget_eq_dec b0 b) as [-> | D0].
    + rewrite set_same. eapply Rle_trans; [apply K | apply (i_limit s I)].
    + rewrite set_other by auto. apply (i_limit s I).
  - destruct (budget_eq_dec b0 b) as [-> | D0].
    + rewrite set_same. eapply Rle_trans; [apply (spent_nonneg s b k I) | apply K].
    + rewrite set_other by auto. apply (i_size s I).
  - destruct (budget_eq_dec b0 b) as [-> | D0].
    + rewrite set_same in H. discriminate.
    + rewrite (set_other _ _ _ _ D0) in H. rewrite (set_other _ _ _ _ D0). apply (i_unopened s I); auto.
  - apply (i_holds s I); auto.
Qed.

Lemma change_cap_invariant : forall s b cap s', invariant s ->
  change_cap s b cap = Some s' -> invariant s'.
Proof.
  intros s b cap s' I H. unfold change_cap in H.
  destruct (in_phase Open s b) eqn:U; [| discriminate].
  destruct (fits (plus (spent s b) (held s b)) cap) eqn:T; [| discriminate].
  destruct (fits cap (limit b)) eqn:L; [| discriminate].
  destruct (parent_affords s b (growth s b cap)) eqn:P; [| discriminate].
  simpl in H. injection H as <-.
  pose proof (in_phase_true _ _ _ U) as U'.
  pose proof (fits_true _ _ T) as T'. pose proof (fits_true _ _ L) as L'. unfold plus in T'.
  assert (G : forall k, 0 <= delta_gone s b cap k).
  { intros k. unfold delta_gone. destruct k; [lra | apply Rmax_l]. }
  constructor; simpl; intros.
  - unfold everywhere, plus. rewrite at_parent_when, (i_held s I).
    unfold held_by_runs, held_by_parts. simpl.
    rewrite (parts_changed
      (fun b' q => when (open_part s b' q) (size s q k))
      (fun b' q => when (open_part (State (set (size s) b cap) 
         (everywhere (spent s) (at_parent b (delta_gone s b cap)))
         (everywhere (held s) (at_parent b (minus cap (size s b))))
         (phase_of s) (holds s)) b' q) (set (size s) b cap q k)) b).
    + unfold open_part, in_phase, when, minus. simpl. rewrite U', set_same, andb_true_r.
      destruct (child b b0); lra.
    + intros b' q Q. unfold open_part, in_phase. simpl. rewrite set_other; auto.
    + intros b' Q. unfold open_part. rewrite Q. reflexivity.
  - unfold everywhere, plus. rewrite at_parent_when. pose proof (i_spent s I b0 k) as Q.
    apply Rle_trans with (spent_by_runs s b0 k + spent_by_parts s b0 k).
    + apply Req_le. unfold spent_by_runs, spent_by_parts. simpl. f_equal.
      apply sum_ext. intros q _. unfold closed_part, in_phase. simpl.
      destruct (budget_eq_dec q b) as [-> | D0].
      * rewrite U', !andb_false_r. reflexivity.
      * rewrite set_other; auto.
    + specialize (G k). unfold when. destruct (child b b0); lra.
  - unfold everywhere, plus. rewrite !at_parent_when. pose proof (i_cap s I b0 k) as Q.
    destruct (budget_eq_dec b0 b) as [-> | D0].
    + rewrite set_same, child_other. simpl. specialize (T' k). lra.
    + rewrite set_other by auto. destruct (child b b0) eqn:K; simpl; [| lra].
      pose proof (parent_left s b _ b0 P K k) as F. unfold left_, growth in F.
      unfold delta_gone, minus. destruct k.
      * pose proof (Rmax_r 0 (cap Epsilon - size s b Epsilon)). lra.
      * unfold Rmax in *. repeat destruct (Rle_dec _ _); lra.
  - destruct (budget_eq_dec b0 b) as [-> | D0].
    + rewrite set_same. apply L'.
    + rewrite set_other by auto. apply (i_limit s I).
  - destruct (budget_eq_dec b0 b) as [-> | D0].
    + rewrite set_same. eapply Rle_trans; [| apply T'].
      pose proof (spent_nonneg s b k I). pose proof (held_nonneg s b k I). lra.
    + rewrite set_other by auto. apply (i_size s I).
  - destruct (budget_eq_dec b0 b) as [-> | D0].
    + rewrite U' in H. discriminate.
    + rewrite set_other by auto. apply (i_unopened s I); auto.
  - apply (i_holds s I); auto.
Qed.

Lemma correct_invariant : forall s b more s', invariant s ->
  correct s b more = Some s' -> invariant s'.
Proof.
  intros s b more s' I H. unfold correct in H.
  destruct (in_phase Open s b); [| discriminate].
  destruct (fits zero more) eqn:Z; [| discriminate].
  destruct (fits more (left_ s b)) eqn:L; [| discriminate].
  simpl in H. injection H as <-.
  pose proof (fits_true _ _ Z) as Z'. pose proof (fits_true _ _ L) as L'.
  unfold zero in Z'. unfold left_ in L'.
  constructor; simpl; intros.
  - apply (i_held s I).
  - eapply Rle_trans; [apply (i_spent s I) |].
    destruct (budget_eq_dec b0 b) as [-> | D0].
    + rewrite set_same. unfold plus. specialize (Z' k). lra.
    + rewrite set_other by auto. lra.
  - pose proof (i_cap s I b0 k). destruct (budget_eq_dec b0 b) as [-> | D0].
    + rewrite set_same. unfold plus. specialize (L' k). lra.
    + rewrite set_other by auto. lra.
  - apply (i_limit s I).
  - apply (i_size s I).
  - apply (i_unopened s I); auto.
  - apply (i_holds s I); auto.
Qed.

Lemma step_invariant : forall s a s', invariant s -> step s a = Some s' -> invariant s'.
Proof.
  intros s a s' I H. destruct a; simpl in H; try discriminate;
    eauto using open_invariant, reserve_invariant, start_invariant, settle_invariant,
      forfeit_invariant, void_invariant, close_invariant, change_cap_invariant,
      correct_invariant.
Qed.

Lemma reachable_invariant : forall s, reachable s -> invariant s.
Proof.
  induction 1; eauto using nothing_invariant, step_invariant, ran_invariant.
Qed.

(* ------------------------------------------------------------- theorems about balances *)

Theorem balances : forall s, reachable s -> forall b k,
  0 <= spent s b k /\ 0 <= held s b k
  /\ spent s b k + held s b k <= size s b k /\ size s b k <= limit b k.
Proof.
  intros s H b k. pose proof (reachable_invariant s H) as I.
  auto using spent_nonneg, held_nonneg, (i_cap s I), (i_limit s I).
Qed.

Theorem nothing_lost : forall s, reachable s -> forall b k,
  sum (fun h => charged h b k) (holds s) + sum (fun q => when (child q b) (size s q k)) all
  <= spent s b k + held s b k.
Proof.
  intros s H b k. pose proof (reachable_invariant s H) as I.
  rewrite (i_held s I). pose proof (i_spent s I b k).
  replace (sum (fun h => charged h b k) (holds s))
    with (held_by_runs s b k + spent_by_runs s b k).
  replace (sum (fun q => when (child q b) (size s q k)) all)
    with (held_by_parts s b k + spent_by_parts s b k).
  - lra.
  - unfold held_by_parts, spent_by_parts. rewrite <- sum_plus. apply sum_ext. intros q _.
    unfold open_part, closed_part, in_phase, when.
    destruct (child q b); simpl; [| lra].
    destruct (phase_of s q) eqn:E; try lra. rewrite (i_unopened s I q k E). lra.
  - unfold held_by_runs, spent_by_runs. rewrite <- sum_plus. apply sum_ext. intros h _.
    unfold when. destruct (is_open h); simpl; lra.
Qed.

(* A run that was never settled takes the price of its worst cell, and delta, in each budget. *)
Theorem never_settled : forall s, reachable s -> forall h, In h (holds s) ->
  status h <> Settled -> status h <> Voided -> forall b k,
  charge (mechanism h) None b k <= slack * charged h b k.
Proof.
  intros s H h Hh N N' b k. apply (i_holds s (reachable_invariant s H) h Hh b k).
  unfold takes_worst. destruct (status h); congruence.
Qed.

(* The delta of a mechanism that ran stays charged, whatever came out and however it ended. *)
Theorem delta_stays_charged : forall s, reachable s -> forall h o, In h (holds s) ->
  seen h = Some o -> forall b, charge (mechanism h) None b Delta <= slack * charged h b Delta.
Proof.
  intros s H h o Hh E b.
  destruct (i_holds s (reachable_invariant s H) h Hh b Delta) as (_ & _ & _ & K).
  specialize (K o E). unfold charge in *. destruct (guarantee_for (mechanism h) b); exact K.
Qed.

Theorem fitting_is_reserved : forall s m, reachable s ->
  (forall b, pays m b = true ->
    phase_of s b = Open /\ forall k, charge m None b k <= left_ s b k) ->
  reserve s m <> None.
Proof.
  intros s m H F. unfold reserve.
  replace (affordable s m) with true; [discriminate |].
  symmetry. apply forallb_forall. intros b _. destruct (pays m b) eqn:P; [| reflexivity].
  destruct (F b P) as (p & f). apply andb_true_iff. split.
  - unfold in_phase. rewrite p. reflexivity.
  - assert (L : forall k, le (charge m None b k) (slack * left_ s b k) = true).
    { intros k. unfold le. destruct (Rle_dec _ _) as [_ | n]; [reflexivity |].
      destruct n. specialize (f k). pose proof (left_nonneg s b k (reachable_invariant s H)). nra. }
    unfold fits. rewrite !L. reflexivity.
Qed.

(* ------------------------------------------------------------------- a budget and its parts *)

(* The sum of f over a budget and its parts, and theirs, down to so many levels. *)
Fixpoint family (levels : nat) (f : B -> R) (b : B) : R :=
  match levels with
  | 0%nat => f b
  | S n => f b + sum (fun q => when (child q b) (family n f q)) all
  end.

Lemma family_plus : forall n f g b,
  family n (fun b => f b + g b) b = family n f b + family n g b.
Proof.
  induction n as [| n IH]; simpl; intros; [reflexivity |].
  rewrite (sum_ext _ (fun q => when (child q b) (family n f q) + when (child q b) (family n g q))).
  - rewrite sum_plus. ring.
  - intros q _. unfold when. destruct (child q b); [apply IH | lra].
Qed.

Lemma family_ext : forall n f g b, (forall b, f b = g b) -> family n f b = family n g b.
Proof.
  induction n as [| n IH]; simpl; intros f g b H; [apply H |].
  rewrite H. f_equal. apply sum_ext. intros q _. unfold when.
  destruct (child q b); [apply IH; exact H | reflexivity].
Qed.

(* If at each budget what is used there and what its parts have is at most what it took, and a part
   took at most what it has, then what the family used is at most what the budget took. *)
Lemma family_le : forall (f has took : B -> R),
  (forall q, 0 <= has q) -> (forall q, took q <= has q) ->
  (forall b, f b + sum (fun q => when (child q b) (has q)) all <= took b) ->
  forall n b, family n f b <= took b.
Proof.
  intros f has took P L H. induction n as [| n IH]; intros b; simpl; specialize (H b).
  - assert (0 <= sum (fun q => when (child q b) (has q)) all).
    { apply sum_nonneg. intros q _. unfold when. destruct (child q b); [apply P | lra]. }
    lra.
  - eapply Rle_trans; [| exact H]. apply Rplus_le_compat_l, sum_le. intros q _.
    unfold when. destruct (child q b); [| lra]. eapply Rle_trans; [apply IH | apply L].
Qed.

(* The price of the output of a hold; nothing if it did not run. *)
Definition used (k : coordinate) (b : B) (h : hold) : R :=
  match seen h with
  | Some o => charge (mechanism h) (Some (cell_of (mechanism h) o)) b k
  | None => 0
  end.

Definition used_at (s : state) (k : coordinate) (b : B) : R := sum (used k b) (holds s).

Lemma family_used : forall s, reachable s -> forall n b k,
  family n (used_at s k) b <= slack * limit b k.
Proof.
  intros s H n b k. pose proof (reachable_invariant s H) as I.
  apply Rle_trans with (slack * (spent s b k + held s b k)).
  - apply (family_le (used_at s k) (fun q => slack * size s q k)
             (fun q => slack * (spent s q k + held s q k))).
    + intros q. pose proof (i_size s I q k). nra.
    + intros q. pose proof (i_cap s I q k). nra.
    + clear b. intros b. pose proof (nothing_lost s H b k) as L.
      apply Rle_trans with (slack * (sum (fun h => charged h b k) (holds s)
        + sum (fun q => when (child q b) (size s q k)) all)); [| nra].
      rewrite Rmult_plus_distr_l, <- !sum_scale. apply Rplus_le_compat.
      * apply sum_le. intros h Hh. destruct (i_holds s I h Hh b k) as (E0 & _ & _ & E3).
        unfold used. destruct (seen h) as [o |]; [auto | nra].
      * apply sum_le. intros q _. unfold when. destruct (child q b); lra.
  - pose proof (i_cap s I b k). pose proof (i_limit s I b k). nra.
Qed.

(* ---------------------------------------------------------------------- the adaptive analyst *)

(* What a mechanism is, at the price that a budget and its parts are charged for it. *)
Definition run_of (levels : nat) (b : B) (m : M) : run D O :=
  Run (outputs_of m) (prob_of m)
      (fun o => family levels (fun b' => charge m (Some (cell_of m o)) b' Epsilon) b)
      (family levels (fun b' => charge m None b' Delta) b).

(* The game: the strategy chooses the next act by all that was seen, or None to stop. *)
Fixpoint play (levels : nat) (b : B) (strategy : transcript -> option act)
    (rounds : nat) (tr : transcript) (s : state) : analyst D O transcript :=
  match rounds with
  | 0%nat => Stop tr
  | S rest =>
      match strategy tr with
      | None => Stop tr
      | Some a =>
          if else_refused tr a then play levels b strategy rest ((a, Refused) :: tr) s
          else match a with
          | RunIt i =>
              match runnable s i with
              | Some h => Ask (run_of levels b (mechanism h))
                  (fun o => play levels b strategy rest ((a, Output o) :: tr) (ran s i h o))
              | None => play levels b strategy rest ((a, Refused) :: tr) s
              end
          | _ =>
              match step s a with
              | Some s' => play levels b strategy rest ((a, Done) :: tr) s'
              | None => play levels b strategy rest ((a, Refused) :: tr) s
              end
          end
      end
  end.

(* Acts that show no output change nothing of what was used. *)
Lemma replace_used : forall k b s i h h', nth_error (holds s) i = Some h ->
  used k b h' = used k b h -> sum (used k b) (replace i h' (holds s)) = used_at s k b.
Proof.
  intros k b s i h h' N E. rewrite (sum_replace _ i h' h _ N), E. unfold used_at. ring.
Qed.

Lemma step_used : forall s a s' k b, step s a = Some s' -> used_at s' k b = used_at s k b.
Proof.
  intros s a s' k b H. destruct a; simpl in H; try discriminate.
  - unfold open_budget in H. destruct (_ && _); [| discriminate]. injection H as <-. reflexivity.
  - unfold reserve in H. destruct (affordable s m); [| discriminate]. injection H as <-.
    unfold used_at. simpl. rewrite sum_app. simpl. unfold used at 2. simpl. ring.
  - unfold start in H. destruct (nth_error (holds s) i) as [h |] eqn:N; [| discriminate].
    destruct h as [m st a o], st; try discriminate. injection H as <-.
    unfold used_at at 1. simpl. apply (replace_used k b s i _ _ N). reflexivity.
  - unfold settle in H. destruct (nth_error (holds s) i) as [h |] eqn:N; [| discriminate].
    destruct (is_open h && cell_is_true h c); [| discriminate]. injection H as <-.
    unfold used_at at 1. simpl. apply (replace_used k b s i _ _ N). reflexivity.
  - unfold forfeit in H. destruct (nth_error (holds s) i) as [h |] eqn:N; [| discriminate].
    destruct (is_open h); [| discriminate]. injection H as <-.
    unfold used_at at 1. simpl. apply (replace_used k b s i _ _ N). reflexivity.
  - unfold void in H. destruct (nth_error (holds s) i) as [h |] eqn:N; [| discriminate].
    destruct h as [m st a [o |]], st; try discriminate. injection H as <-.
    unfold used_at at 1. simpl. apply (replace_used k b s i _ _ N). reflexivity.
  - unfold close in H. destruct (_ && _); [| discriminate]. injection H as <-. reflexivity.
  - unfold change_cap in H. destruct (_ && _); [| discriminate]. injection H as <-. reflexivity.
  - unfold correct in H. destruct (_ && _); [| discriminate]. injection H as <-. reflexivity.
Qed.

Lemma ran_used : forall s i h o k b, runnable s i = Some h ->
  used_at (ran s i h o) k b
  = used_at s k b + charge (mechanism h) (Some (cell_of (mechanism h) o)) b k.
Proof.
  intros s i h o k b H. unfold runnable in H.
  destruct (nth_error (holds s) i) as [h' |] eqn:N; [| discriminate].
  destruct (takes_worst h'); [| discriminate].
  destruct (seen h') eqn:E; [discriminate |]. injection H as ->.
  unfold used_at, ran, with_hold. simpl. rewrite (sum_replace _ i _ h _ N).
  unfold used at 2 3. rewrite E. simpl. ring.
Qed.

(* On every path, what the runs of a family cost adds up to at most the cap. *)
Lemma play_paid : forall levels b strategy rounds tr s, reachable s ->
  forall v, In v (views (play levels b strategy rounds tr s)) ->
  family levels (used_at s Epsilon) b + paid v <= slack * limit b Epsilon
  /\ family levels (used_at s Delta) b + paid_delta v <= slack * limit b Delta.
Proof.
  intros levels b strategy. induction rounds as [| rounds IH]; intros tr s Hs v Hv.
  - destruct Hv as [<- | []]. simpl. rewrite !Rplus_0_r. auto using family_used.
  - simpl in Hv. destruct (strategy tr) as [a |].
    2: { destruct Hv as [<- | []]. simpl. rewrite !Rplus_0_r. auto using family_used. }
    destruct (else_refused tr a); [eauto |].
    assert (plain : In v (views (match step s a with
        | Some s' => play levels b strategy rounds ((a, Done) :: tr) s'
        | None => play levels b strategy rounds ((a, Refused) :: tr) s
        end)) ->
      family levels (used_at s Epsilon) b + paid v <= slack * limit b Epsilon
      /\ family levels (used_at s Delta) b + paid_delta v <= slack * limit b Delta).
    { destruct (step s a) as [s' |] eqn:E; [| apply IH; auto].
      intros V. destruct (IH _ s' (by_step s a s' Hs E) v V) as (H & H').
      rewrite (family_ext _ _ (used_at s Epsilon)) in H by (intros; eapply step_used; eauto).
      rewrite (family_ext _ _ (used_at s Delta)) in H' by (intros; eapply step_used; eauto).
      auto. }
    destruct a; auto. clear plain.
    destruct (runnable s i) as [h |] eqn:E; [| eauto].
    simpl in Hv. apply in_flat_map in Hv as (o & Ho & Hv).
    apply in_map_iff in Hv as (w & <- & Hw).
    destruct (IH _ _ (by_run s i h o Hs E) w Hw) as (H & H').
    rewrite (family_ext _ _ (fun b' => used_at s Epsilon b'
      + charge (mechanism h) (Some (cell_of (mechanism h) o)) b' Epsilon)) in H
      by (intros; apply ran_used; auto).
    rewrite (family_ext _ _ (fun b' => used_at s Delta b'
      + charge (mechanism h) None b' Delta)) in H'.
    + rewrite family_plus in H, H'. simpl. lra.
    + intros b'. exact (ran_used s i h o Delta b' E).
Qed.

(* Every mechanism there is has probabilities on x and x', and keeps its promise between them at
   the price that the budget b and its parts are charged.  A mechanism that none of them pays for
   has the price 0 and the delta 0: it must not tell x from x'. *)
Definition promised (levels : nat) (b : B) (x x' : D) : Prop := forall m,
  proper x (run_of levels b m) /\ proper x' (run_of levels b m)
  /\ odp x x' (run_of levels b m).

Lemma play_honest : forall levels b x x', promised levels b x x' ->
  forall strategy rounds tr s, honest x x' (play levels b strategy rounds tr s).
Proof.
  intros levels b x x' P strategy. induction rounds as [| rounds IH]; intros tr s; simpl; auto.
  destruct (strategy tr) as [a |]; simpl; auto.
  destruct (else_refused tr a); auto.
  destruct a; try (destruct (step _ _); auto; fail).
  - destruct (runnable s i) as [h |]; simpl; auto.
    destruct (P (mechanism h)) as (Q & Q' & Q''). auto.
Qed.

(* The probability that the transcript is in a set of transcripts. *)
Definition probability (x : D) (game : analyst D O transcript) (set : transcript -> bool) : R :=
  sum (fun v => when (set (shown v)) (chance v x)) (views game).

Theorem account_private : forall levels b x x', promised levels b x x' ->
  forall strategy rounds set,
  let game := play levels b strategy rounds [] nothing in
  probability x game set
  <= slack * limit b Delta + exp (slack * limit b Epsilon) * probability x' game set.
Proof.
  intros levels b x x' P strategy rounds set game.
  apply (filter D O transcript); [apply play_honest; exact P |].
  intros v Hv. destruct (play_paid levels b strategy rounds [] nothing at_first v Hv) as (H & H').
  assert (Z : forall k, family levels (used_at nothing k) b = 0).
  { intros k. clear. revert b. induction levels as [| n IH]; intros b; simpl; [reflexivity |].
    unfold used_at. simpl. rewrite (sum_ext _ (fun _ => 0)).
    - rewrite sum_zero. lra.
    - intros q _. unfold when. destruct (child q b); auto. }
  rewrite Z in H, H'. lra.
Qed.

Theorem account_both_directions : forall levels b x x',
  promised levels b x x' -> promised levels b x' x ->
  forall strategy rounds set,
  let game := play levels b strategy rounds [] nothing in
  probability x game set
  <= slack * limit b Delta + exp (slack * limit b Epsilon) * probability x' game set
  /\
  probability x' game set
  <= slack * limit b Delta + exp (slack * limit b Epsilon) * probability x game set.
Proof. intros. split; apply account_private; auto. Qed.

End Account.

(* The theorem once more, for one budget of (epsilon, delta) in memory, with the promise written
   out: OutputDPFilter(epsilon, delta). *)
Theorem one_budget : forall (D O C M : Type)
  (cell_eq_dec : forall c c' : C, {c = c'} + {c <> c'})
  (outputs_of : M -> list O) (prob_of : M -> D -> O -> R) (cell_of : M -> O -> C)
  (guarantee_of : M -> guarantee C) (epsilon delta : R),
  0 <= epsilon -> 0 <= delta ->
  let run m := Run (outputs_of m) (prob_of m) (fun o => price_of (guarantee_of m) (cell_of m o))
                   (guaranteed_delta (guarantee_of m)) in
  let cap k := match k with Epsilon => epsilon | Delta => delta end in
  let game := play D O C M unit cell_eq_dec
      (fun b b' => match b, b' with tt, tt => left eq_refl end) [tt] (fun _ => None)
      outputs_of prob_of cell_of (fun m _ => Some (guarantee_of m)) 1 (fun _ => cap)
      (fun _ _ => false) 0 tt in
  forall x x', (forall m, proper x (run m) /\ proper x' (run m) /\ odp x x' (run m)) ->
  forall strategy rounds set,
  let end_of := game strategy rounds [] (nothing O M unit) in
  probability D O C M unit x end_of set
  <= delta + exp epsilon * probability D O C M unit x' end_of set.
Proof.
  intros D O C M cell_eq_dec outputs_of prob_of cell_of guarantee_of epsilon delta E F
    run cap game x x' H strategy rounds set end_of.
  rewrite <- (Rmult_1_l delta), <- (Rmult_1_l epsilon).
  refine (account_private D O C M unit cell_eq_dec
    (fun b b' => match b, b' with tt, tt => left eq_refl end) [tt] _ _ (fun _ => None) _
    outputs_of prob_of cell_of (fun m _ => Some (guarantee_of m)) 1 _ (fun _ => cap) _
    (fun _ _ => false) 0 tt x x' H strategy rounds set).
  - repeat constructor. simpl. tauto.
  - intros []. simpl. auto.
  - discriminate.
  - lra.
  - intros _ []; simpl; assumption.
Qed.

Print Assumptions balances.
Print Assumptions nothing_lost.
Print Assumptions never_settled.
Print Assumptions delta_stays_charged.
Print Assumptions fitting_is_reserved.
Print Assumptions account_private.
Print Assumptions account_both_directions.
Print Assumptions one_budget.
