(* The analyst chooses: families of pairs in a plan, and graphs of states with prices.

   IN PLAIN WORDS.  An analyst runs mechanisms one after the other.  Which one comes next, and what
   it asks, may depend on all that was seen.  In between there may be anything that is as likely
   under x as under x'.

   FAMILIES.  plans.v has plans of pairs.  Now a plan may also hold a number of runs of a family: a
   set of pairs (its members) of which no one need dominate the others.  Each of these runs is a
   mechanism that some member dominates; which member, is chosen after all that was seen.  For n
   runs there is a joint pair: that of n + 1 runs dominates any member together with that of n runs.

   Theorem families:            every f-divergence of all that is seen is at most that of all pairs
                              and joint pairs together, in any order, with any number of runs left.
   Theorem families_private:    so all that is seen is (epsilon, delta)-DP for every epsilon, where
                              delta is that of all these pairs together, in both directions.
   Theorem joint_by_deltas:     pairs are joint pairs if their deltas are large enough: those of n + 1
                              runs at least those of any member together with n runs.
   Theorem two_ends:            if all losses lie in an interval of a known length, one of the pairs
                              with two outputs, at the ends of that interval, dominates.
   Theorem bounded_range:       so, for mechanisms of this bounded range, joint_by_deltas need be
                              checked only for the pairs with two outputs.

   GRAPHS.  In each state there are moves, each with a pair and the next state: a mechanism runs
   that this pair dominates.  In some states one may stop, and gains what a sublinear function says
   of the probabilities a and b of what was seen: in a state of the price E, (a - e^E b)_+.

   Theorem choices:             if in each state W is sublinear, at least the gain of stopping, and at
                              least the sum of the W behind the outputs of each move's pair (of any
                              number of moves: of all members of a family, too), then all that is
                              gained is at most W of the first state.
   Theorem induction_covers:    in a finite graph without cycles, the recursion of the code is such a W:
                              the largest of the gain of stopping and of these sums of all moves.
   Theorem attained:            one analyst, who runs the pairs themselves, gains just as much.
   Theorem from_below:          any set of what is seen, chosen by merged outputs as one likes, has a
                              probability A and a charge B = sum of e^E Pr(under x'): where a and b
                              are those of what was seen before, a A - b B is at most the value.
   Theorem walking_away:        W stays such a W if one may also stop in other states, and there pays as
                              in some state that moves lead to: one who walks away or crashes.
   Theorem overtaken:           nothing more is gained if moves may be begun, and the end be chosen, while
                              moves that were begun before are still running: their outputs come later.
   Theorem prices:              for every set S of what was seen, W being that of the prices' gains,
       Pr(seen under x in S)  <=  W + sum of e^E Pr(seen under x' in S, stopped at the price E):
                              each output is charged the price of the state where it stopped.
   Theorem prices_overtaken:    the same, where moves that were begun are still running at the end.
   Theorem prices_attained:     for one analyst and one set S these are equal: the recursion finds the
                              least such delta.

   A pair's outputs of infinite loss (q = 0) are outputs as any other.  What is said of graphs is
   said of one ordered pair of data sets; the other one has pairs, and a W, of its own.

   Source: Dong, Durfee, Rogers 2020, for bounded range and its recursion; the recursion of graphs is
   that of stopping.v with a maximum over moves. *)

From Coq Require Import Reals Lra Lia List Bool.
From Tightbudget Require Import sums order stopping plans.
Import ListNotations.
Open Scope R_scope.

(* ------------------------------------------------------------------- one who keeps to rules *)

(* may_run s X s': in the state s a mechanism may run whose outputs have the probabilities X; then
   the state is s'.  may_stop s v: in the state s one may stop and show v. *)
Inductive keeps_to {O A State : Type} (may_run : State -> pair -> State -> Prop)
    (may_stop : State -> A -> Prop) : State -> analyst O A -> Prop :=
  | stops s v : may_stop s v -> keeps_to may_run may_stop s (Stop O A v)
  | runs s s' outs p q next :
      may_run s (pair_of O outs p q) s' ->
      (forall o, In o outs -> keeps_to may_run may_stop s' (next o)) ->
      keeps_to may_run may_stop s (Run O A outs p q next)
  | reveals_nothing s outs p next :
      is_law (pair_of O outs p p) ->
      (forall o, In o outs -> keeps_to may_run may_stop s (next o)) ->
      keeps_to may_run may_stop s (Run O A outs p p next).

(* Where a move has the pair X, any mechanism that X dominates may run. *)
Definition below {State : Type} (move : State -> pair -> State -> Prop)
    (s : State) (M : pair) (s' : State) : Prop :=
  exists X, move s X s' /\ is_pair M /\ dominated M X.

(* The induction over the analyst: what is gained in all is at most V of the state, if V is at least
   what is gained by stopping, and if no move raises it. *)
Lemma bounded : forall (O A State : Type) (move : State -> pair -> State -> Prop)
  (may_stop : State -> A -> Prop) (gained : A -> R -> R -> R) (V : State -> R -> R -> R)
  (fair : State -> Prop),
  (forall s, fair s -> sublinear (V s)) ->
  (forall s v, fair s -> may_stop s v -> forall a b, 0 <= a -> 0 <= b -> gained v a b <= V s a b) ->
  (forall s X s', fair s -> move s X s' -> fair s' /\ forall a b, 0 <= a -> 0 <= b ->
    sum (fun o => V s' (a * fst o) (b * snd o)) X <= V s a b) ->
  forall s (t : analyst O A), keeps_to (below move) may_stop s t -> fair s ->
  forall a b, 0 <= a -> 0 <= b ->
  sum (fun v => gained (fst v) (fst (snd v)) (snd (snd v))) (views O A t a b) <= V s a b.
Proof.
  intros O A State move may_stop gained V fair L G M s t K.
  induction K as [s v E | s s' outs p q next (X & E & N & D) K IH | s outs p next (N & T) K IH];
    intros P a b A0 B0; simpl.
  - rewrite Rplus_0_r. apply G; auto.
  - destruct (M s X s' P E) as (P' & H).
    rewrite sum_flat_map. eapply Rle_trans; [| apply (H a b A0 B0)].
    apply Rle_trans with (sum (fun o => V s' (a * p o) (b * q o)) outs).
    + apply sum_le. intros o Ho.
      assert (0 <= p o /\ 0 <= q o) as (?, ?).
      { apply (N (p o, q o)). unfold pair_of. apply in_map_iff. exists o. auto. }
      apply IH; auto; apply Rmult_le_pos; auto.
    + specialize (D _ (sublinear_left _ a b (L s' P') A0 B0)). unfold divergence, pair_of in D.
      rewrite sum_map in D. exact D.
  - assert (N' : forall o, In o outs -> 0 <= p o).
    { intros o Ho. apply (N (p o, p o)). unfold pair_of. apply in_map_iff. exists o. auto. }
    rewrite sum_flat_map.
    apply Rle_trans with (sum (fun o => p o * V s a b) outs).
    + apply sum_le. intros o Ho. specialize (N' o Ho).
      rewrite <- (homogeneous _ (L s P) (p o) a b) by auto.
      rewrite (Rmult_comm (p o) a), (Rmult_comm (p o) b).
      apply IH; auto; apply Rmult_le_pos; auto.
    + rewrite sum_scale_right. unfold total, pair_of in T. rewrite !sum_map in T. simpl in T.
      injection T as T _. change (sum p outs = 1) in T. rewrite T. lra.
Qed.

(* ------------------------------------------------------------------------------- families *)

(* What is left of a plan: one run of a mechanism that a pair dominates; or a number of runs, each
   dominated by some member of a family, where `joint n` is the joint pair of n runs. *)
Inductive entry :=
  | Once (X : pair)
  | Family (members : pair -> Prop) (joint : nat -> pair) (number : nat).

(* One run uses up a pair, or one run of a family. *)
Inductive may_run : list entry -> pair -> list entry -> Prop :=
  | by_itself before (X : pair) later : may_run (before ++ Once X :: later) X (before ++ later)
  | as_member before (members : pair -> Prop) joint number later F : members F ->
      may_run (before ++ Family members joint (S number) :: later) F
        (before ++ Family members joint number :: later).

Definition follows_plan {O A : Type} : list entry -> analyst O A -> Prop :=
  keeps_to (below may_run) (fun _ _ => True).

(* One more run of any member is dominated by the next joint pair. *)
Definition sound (e : entry) : Prop :=
  match e with
  | Once X => is_law X
  | Family members joint number =>
      (forall n, (n <= number)%nat -> is_law (joint n))
      /\ forall F n, members F -> (n < number)%nat -> dominated (product F (joint n)) (joint (S n))
  end.

(* All runs that are left of it. *)
Definition whole (e : entry) : pair :=
  match e with Once X => X | Family _ joint number => joint number end.

Lemma whole_is_law : forall e, sound e -> is_law (whole e).
Proof. intros [X | members joint number] H; simpl in *; [exact H | apply H; lia]. Qed.

Lemma wholes_are_laws : forall plan, (forall e, In e plan -> sound e) ->
  forall X, In X (map whole plan) -> is_law X.
Proof.
  intros plan P X H. apply in_map_iff in H as (e & <- & He). apply whole_is_law, P, He.
Qed.

Lemma total_product : forall X Y,
  total (product X Y) = (fst (total X) * fst (total Y), snd (total X) * snd (total Y)).
Proof.
  intros X Y. unfold total, product. simpl. f_equal; rewrite sum_flat_map, <- sum_scale_right;
    apply sum_ext; intros o _; rewrite sum_map, <- sum_scale; apply sum_ext; reflexivity.
Qed.

(* One more run of a family, and then the others. *)
Lemma joint_runs : forall phi before F X X' later a b,
  (forall Y, In Y (before ++ later) -> is_law Y) -> sublinear phi ->
  dominated (product F X) X' -> 0 <= a -> 0 <= b ->
  sum (fun o => ahead phi (before ++ X :: later) (a * fst o) (b * snd o)) F
  <= ahead phi (before ++ X' :: later) a b.
Proof.
  intros phi before F X X' later a b P H D A0 B0.
  assert (S : sublinear (ahead phi (before ++ later))).
  { apply ahead_sublinear; auto. intros Y HY. apply (P Y HY). }
  specialize (D _ (sublinear_left _ a b S A0 B0)).
  rewrite ahead_first, (sum_ext _ (fun o => sum (fun o' => ahead phi (before ++ later)
    (a * (fst o * fst o')) (b * (snd o * snd o'))) X)).
  - rewrite divergence_product in D. exact D.
  - intros o _. rewrite ahead_first. apply sum_ext. intros o' _. f_equal; ring.
Qed.

Theorem families : forall (O A : Type) plan (t : analyst O A),
  (forall e, In e plan -> sound e) -> follows_plan plan t ->
  dominated (map snd (views O A t 1 1)) (together (map whole plan)).
Proof.
  intros O A plan t P F phi H. unfold divergence. rewrite sum_map.
  apply Rle_trans with (ahead phi (map whole plan) 1 1).
  - apply (bounded O A (list entry) may_run (fun _ _ => True) (fun _ => phi)
      (fun plan => ahead phi (map whole plan)) (fun plan => forall e, In e plan -> sound e));
      auto using Rle_0_1.
    + intros s L. apply ahead_sublinear; auto. intros X HX. apply (wholes_are_laws s L X HX).
    + intros s _ L _ a b A0 B0. apply left_over; auto. apply wholes_are_laws, L.
    + intros s X s' L E. destruct E as [before X later | before members joint number later F0 E].
      * split; [intros e He; apply L; apply in_app_or in He; apply in_or_app; simpl; tauto |].
        intros a b _ _. rewrite !map_app. simpl. rewrite ahead_first. lra.
      * assert (I : forall e, In e (before ++ later) -> sound e).
        { intros e He. apply L. apply in_app_or in He. apply in_or_app. simpl. tauto. }
        destruct (L (Family members joint (S number))) as (Q & D).
        { apply in_or_app. simpl. auto. }
        split.
        -- intros e He. apply in_app_or in He as [He | [<- | He]];
             try (apply I, in_or_app; tauto).
           split; [intros n Hn; apply Q; lia | intros F' n M Hn; apply D; auto; lia].
        -- intros a b A0 B0. rewrite !map_app. simpl.
           apply joint_runs; auto.
           rewrite <- map_app. apply wholes_are_laws, I.
  - rewrite ahead_together. apply Req_le, sum_ext. intros o _. f_equal; ring.
Qed.

Theorem families_private : forall (O A : Type) plan (t : analyst O A) epsilon,
  (forall e, In e plan -> sound e) -> follows_plan plan t ->
  forall S : A -> bool,
    let all_runs := together (map whole plan) in
    let under_x := sum (fun v => when (S (fst v)) (fst (snd v))) (views O A t 1 1) in
    let under_x' := sum (fun v => when (S (fst v)) (snd (snd v))) (views O A t 1 1) in
    under_x <= delta_at epsilon all_runs + exp epsilon * under_x'
    /\ under_x' <= delta_back_at epsilon all_runs + exp epsilon * under_x.
Proof.
  intros O A plan t epsilon P F. apply private, families; auto.
Qed.

(* Where the deltas of the joint pairs are known, they are enough. *)
Theorem joint_by_deltas : forall (members : pair -> Prop) joint number,
  (forall n, (n <= number)%nat -> is_law (joint n)) ->
  (forall F, members F -> is_law F) ->
  (forall F n epsilon, members F -> (n < number)%nat ->
    delta_at epsilon (product F (joint n)) <= delta_at epsilon (joint (S n))) ->
  sound (Family members joint number).
Proof.
  intros members joint number Q M H. split; [exact Q |]. intros F n HF Hn.
  destruct (M F HF) as (PF & TF), (Q n) as (PX & TX); [lia |].
  destruct (Q (S n)) as (PY & TY); [lia |].
  apply curves; auto.
  - apply product_is_pair; auto.
  - rewrite TY, total_product, TF, TX. simpl. f_equal; ring.
Qed.

(* Bounded range: all losses lie in an interval of the length `range`, whose upper end is t.  The
   worst pair with such losses has two outputs, at the ends; in 0 <= t <= range, since the losses of
   a pair are not all above 0, nor all below. *)
Definition at_ends (range t : R) : pair :=
  let p := (1 - exp (t - range)) / (1 - exp (- range)) in
  [(1 - p, (1 - p) * exp (range - t)); (p, p * exp (- t))].

Definition of_range (range : R) (F : pair) : Prop := exists t, 0 <= t <= range /\ F = at_ends range t.

Lemma ends_are_edges : forall range t, at_ends range t = at_edges (t - range) t 1 1.
Proof.
  intros range t. unfold at_ends, at_edges, left_share, right_share.
  replace (t - range - t) with (- range) by ring. replace (- (t - range)) with (range - t) by ring.
  rewrite Rmult_1_l. reflexivity.
Qed.

Lemma range_of_ends : forall range t, in_bucket (t - range) t (1, 1) <-> 0 <= t <= range.
Proof.
  intros range t. unfold in_bucket. simpl. rewrite !Rmult_1_l.
  replace (- (t - range)) with (range - t) by ring. split.
  - intros (_ & E & E'). split.
    + destruct (Rle_dec 0 t) as [G | G]; [exact G | exfalso].
      assert (exp 0 < exp (- t)) by (apply exp_increasing; lra). rewrite exp_0 in *. lra.
    + destruct (Rle_dec t range) as [G | G]; [exact G | exfalso].
      assert (exp (range - t) < exp 0) by (apply exp_increasing; lra). rewrite exp_0 in *. lra.
  - intros (E & E'). rewrite <- exp_0 at 2 3. split; [lra | split].
    + destruct (Req_dec t 0) as [-> | N]; [rewrite Ropp_0; lra |].
      left. apply exp_increasing. lra.
    + destruct (Req_dec t range) as [-> | N]; [rewrite Rminus_diag_eq by reflexivity; lra |].
      left. apply exp_increasing. lra.
Qed.

Lemma in_bucket_total : forall low high X, (forall o, In o X -> in_bucket low high o) ->
  in_bucket low high (total X).
Proof.
  intros low high X H. induction X as [| o X IH]; [unfold in_bucket; simpl; lra |].
  destruct (H o (or_introl eq_refl)) as (A & B & B').
  destruct IH as (IA & IB & IB'); [intros; apply H; simpl; auto |].
  unfold in_bucket in *. simpl in *. lra.
Qed.

Theorem two_ends : forall range t X, 0 < range -> is_law X ->
  (forall o, In o X -> in_bucket (t - range) t o) ->
  of_range range (at_ends range t) /\ dominated X (at_ends range t).
Proof.
  intros range t X L (P & T) H. rewrite ends_are_edges.
  pose proof (bucket_spread (t - range) t X) as (_ & _ & D); [lra | exact H |].
  rewrite T in D. split; [| exact D].
  exists t. split; [| symmetry; apply ends_are_edges].
  apply range_of_ends. rewrite <- T. apply in_bucket_total, H.
Qed.

Theorem bounded_range : forall range joint number, 0 < range ->
  (forall n, (n <= number)%nat -> is_law (joint n)) ->
  (forall t n epsilon, 0 <= t <= range -> (n < number)%nat ->
    delta_at epsilon (product (at_ends range t) (joint n)) <= delta_at epsilon (joint (S n))) ->
  sound (Family (of_range range) joint number).
Proof.
  intros range joint number L Q H. apply joint_by_deltas; [exact Q | |].
  - intros F (t & T & ->). rewrite ends_are_edges. apply range_of_ends in T.
    pose proof (bucket_spread (t - range) t [(1, 1)]) as (P & E & _); [lra | |].
    + intros o [<- | []]. exact T.
    + simpl in P, E. rewrite !Rplus_0_r in P, E. split; [exact P | exact E].
  - intros F n epsilon (t & T & ->) N. apply H; auto.
Qed.

(* --------------------------------------------------------------------- graphs of states *)

Section Graphs.

Variable State : Type.
Variable may_stop : State -> bool.
Variable gain : State -> R -> R -> R.  (* by stopping, where the probabilities so far are a and b *)

(* One who stops shows something, and the state. *)
Definition stops_there {A : Type} (s : State) (v : A * State) : Prop :=
  snd v = s /\ may_stop s = true.

(* All that is gained, where what was seen before has the probabilities a and b. *)
Definition gains {O A : Type} (t : analyst O (A * State)) (a b : R) : R :=
  sum (fun v => gain (snd (fst v)) (fst (snd v)) (snd (snd v))) (views O (A * State) t a b).

(* W is at least what is gained by stopping, and no move raises it. *)
Record covers (move : State -> pair -> State -> Prop) (W : State -> R -> R -> R) : Prop := Covers {
  is_sublinear : forall s, sublinear (W s);
  at_stops : forall s a b, may_stop s = true -> 0 <= a -> 0 <= b -> gain s a b <= W s a b;
  at_moves : forall s X s' a b, move s X s' -> 0 <= a -> 0 <= b ->
    sum (fun o => W s' (a * fst o) (b * snd o)) X <= W s a b }.

Theorem choices : forall (O A : Type) move W s (t : analyst O (A * State)),
  covers move W -> keeps_to (below move) stops_there s t -> gains t 1 1 <= W s 1 1.
Proof.
  intros O A move W s t C K.
  apply (bounded O (A * State) State move stops_there (fun v => gain (snd v)) W (fun _ => True));
    auto using Rle_0_1.
  - intros s0 _. apply (is_sublinear move W C).
  - intros s0 v _ (<- & E) a b A0 B0. apply (at_stops move W C); auto.
  - intros s0 X s' _ E. split; auto. intros a b A0 B0. apply (at_moves move W C); auto.
Qed.

(* ----------------------------------------------------------- finite graphs without cycles *)

Variable moves : State -> list (pair * State).
Variable rank : State -> nat.

(* Each move leads to a state of a smaller rank, so that there is no cycle. *)
Definition acyclic : Prop := forall s m, In m (moves s) -> (rank (snd m) < rank s)%nat.
Definition moves_have_pairs : Prop := forall s m, In m (moves s) -> is_pair (fst m).
(* Nobody is stuck: where one may not stop, there is a move. *)
Definition goes_on : Prop := forall s, may_stop s = true \/ moves s <> [].

(* The mechanism that runs has the pair of a move. *)
Definition one_of_the_moves (s : State) (X : pair) (s' : State) : Prop := In (X, s') (moves s).

(* The largest number of a list, and 0 if there is none. *)
Fixpoint largest (l : list R) : R :=
  match l with
  | [] => 0
  | x :: rest => match rest with [] => x | _ => Rmax x (largest rest) end
  end.

(* What one may do in a state: stop (None), or one of the moves. *)
Definition to_choose (s : State) : list (option (pair * State)) :=
  (if may_stop s then [None] else []) ++ map Some (moves s).

(* What is gained by it, where V is what is gained from the next state on. *)
Definition gain_by (V : State -> R -> R -> R) (s : State) (choice : option (pair * State))
    (a b : R) : R :=
  match choice with
  | None => gain s a b
  | Some (X, s') => sum (fun o => V s' (a * fst o) (b * snd o)) X
  end.

Definition offers (V : State -> R -> R -> R) (s : State) (a b : R) : list R :=
  map (fun choice => gain_by V s choice a b) (to_choose s).

(* The recursion: with fewer than n moves; a state has no more than its rank. *)
Fixpoint within_moves (n : nat) (s : State) (a b : R) : R :=
  match n with O => 0 | S n => largest (offers (within_moves n) s a b) end.

Definition value (s : State) : R -> R -> R := within_moves (S (rank s)) s.

Lemma moves_to_choose : forall s m, In (Some m) (to_choose s) <-> In m (moves s).
Proof.
  intros s m. unfold to_choose. rewrite in_app_iff, in_map_iff. split.
  - intros [H | (m' & [= ->] & H)]; [| exact H].
    destruct (may_stop s); simpl in H; intuition discriminate.
  - intros H. right. exists m. auto.
Qed.

Lemma stop_to_choose : forall s, In None (to_choose s) <-> may_stop s = true.
Proof.
  intros s. unfold to_choose. rewrite in_app_iff, in_map_iff. split.
  - intros [H | (m & E & _)]; [| discriminate]. destruct (may_stop s); [auto | destruct H].
  - intros ->. simpl. auto.
Qed.

Lemma enough_moves : acyclic -> forall n n' s a b, (rank s < n)%nat -> (rank s < n')%nat ->
  within_moves n s a b = within_moves n' s a b.
Proof.
  intros C. induction n as [| n IH]; intros [| n'] s a b N N'; try lia. simpl.
  f_equal. apply map_ext_in. intros [(X, s') |] H; simpl; [| reflexivity].
  apply moves_to_choose in H. pose proof (C s _ H) as L. simpl in L.
  apply sum_ext. intros o _. apply IH; lia.
Qed.

(* So it is the recursion without a count of the moves. *)
Lemma recursion : acyclic -> forall s a b, value s a b = largest (offers value s a b).
Proof.
  intros C s a b. unfold value at 1. simpl. f_equal.
  apply map_ext_in. intros [(X, s') |] H; simpl; [| reflexivity].
  apply moves_to_choose in H. pose proof (C s _ H) as L. simpl in L.
  apply sum_ext. intros o _. apply enough_moves; auto; lia.
Qed.

Lemma largest_above : forall l x, In x l -> x <= largest l.
Proof.
  induction l as [| y l IH]; intros x H; [destruct H |].
  destruct l as [| z l]; [destruct H as [<- | []]; simpl; lra |].
  change (largest (y :: z :: l)) with (Rmax y (largest (z :: l))).
  destruct H as [<- | H]; [apply Rmax_l | eapply Rle_trans; [apply IH, H | apply Rmax_r]].
Qed.

Lemma largest_scale : forall c l, 0 <= c -> largest (map (Rmult c) l) = c * largest l.
Proof.
  intros c l C. induction l as [| x l IH]; [simpl; ring |].
  destruct l as [| y l]; [reflexivity |].
  change (Rmax (c * x) (largest (map (Rmult c) (y :: l))) = c * Rmax x (largest (y :: l))).
  rewrite IH. apply RmaxRmult. exact C.
Qed.

(* The largest of several sublinear functions is one. *)
Lemma largest_sublinear : forall {B : Type} (phi : B -> R -> R -> R) (l : list B),
  (forall c, In c l -> sublinear (phi c)) ->
  sublinear (fun a b => largest (map (fun c => phi c a b) l)).
Proof.
  intros B phi l L. split.
  - intros k p q K P Q. rewrite <- largest_scale, map_map by auto. f_equal.
    apply map_ext_in. intros c H. apply (homogeneous _ (L c H)); auto.
  - intros p q p' q' P Q P' Q'. induction l as [| c l IH]; [simpl; lra |].
    assert (H : phi c (p + p') (q + q') <= phi c p q + phi c p' q').
    { apply (subadditive _ (L c (or_introl eq_refl))); auto. }
    specialize (IH (fun d Hd => L d (or_intror Hd))).
    destruct l as [| d l]; [exact H |].
    set (rest := d :: l) in *.
    change (Rmax (phi c (p + p') (q + q')) (largest (map (fun c => phi c (p + p') (q + q')) rest))
      <= Rmax (phi c p q) (largest (map (fun c => phi c p q) rest))
         + Rmax (phi c p' q') (largest (map (fun c => phi c p' q') rest))).
    pose proof (Rmax_l (phi c p q) (largest (map (fun c => phi c p q) rest))).
    pose proof (Rmax_r (phi c p q) (largest (map (fun c => phi c p q) rest))).
    pose proof (Rmax_l (phi c p' q') (largest (map (fun c => phi c p' q') rest))).
    pose proof (Rmax_r (phi c p' q') (largest (map (fun c => phi c p' q') rest))).
    apply Rmax_lub; lra.
Qed.

Lemma sum_sublinear : forall phi X, sublinear phi -> is_pair X ->
  sublinear (fun a b => sum (fun o => phi (a * fst o) (b * snd o)) X).
Proof.
  intros phi X H P.
  assert (L : forall o, In o X -> sublinear (fun a b => phi (a * fst o) (b * snd o))).
  { intros o Ho. destruct (P o Ho). apply sublinear_right; auto. }
  split.
  - intros c p q C p0 q0. rewrite <- sum_scale. apply sum_ext. intros o Ho.
    apply (homogeneous _ (L o Ho)); auto.
  - intros p q p' q' p0 q0 p0' q0'. rewrite <- sum_plus. apply sum_le. intros o Ho.
    apply (subadditive _ (L o Ho)); auto.
Qed.

Lemma value_sublinear : moves_have_pairs -> (forall s, sublinear (gain s)) ->
  forall n s, sublinear (within_moves n s).
Proof.
  intros P G. induction n as [| n IH]; intros s.
  - split; intros; simpl; lra.
  - apply (largest_sublinear (gain_by (within_moves n) s)). intros [(X, s') |] H; [| apply G].
    apply sum_sublinear; [apply IH | apply (P s (X, s')), moves_to_choose, H].
Qed.

Theorem induction_covers : acyclic -> moves_have_pairs -> (forall s, sublinear (gain s)) ->
  covers one_of_the_moves value.
Proof.
  intros C P G. split.
  - intros s. apply value_sublinear; auto.
  - intros s a b E _ _. rewrite recursion by auto. apply largest_above.
    apply in_map_iff. exists None. split; [reflexivity | apply stop_to_choose, E].
  - intros s X s' a b E _ _. rewrite recursion by auto. apply largest_above.
    apply in_map_iff. exists (Some (X, s')). split; [reflexivity | apply moves_to_choose, E].
Qed.

(* --------------------------------------------------------------- the choices that attain it *)

Lemma largest_is_one : forall {B : Type} (f : B -> R) (l : list B), l <> [] ->
  { c | In c l /\ f c = largest (map f l) }.
Proof.
  intros B f l. induction l as [| c l IH]; intros N; [contradiction |].
  destruct l as [| d l]; [exists c; simpl; auto |].
  destruct IH as (e & H & E); [discriminate |].
  change (largest (map f (c :: d :: l))) with (Rmax (f c) (largest (map f (d :: l)))). unfold Rmax.
  destruct (Rle_dec (f c) (largest (map f (d :: l)))).
  - exists e. simpl in *. auto.
  - exists c. simpl. auto.
Qed.

(* One who knows the probabilities of what was seen, and shows them; outputs are those of the pairs. *)
Lemma best : acyclic -> goes_on -> forall n s, (rank s < n)%nat -> forall a b,
  { t : analyst (R * R) ((R * R) * State)
  | keeps_to one_of_the_moves stops_there s t
    /\ gains t a b = value s a b
    /\ forall v, In v (views _ _ t a b) -> fst (fst v) = snd v }.
Proof.
  intros C G. induction n as [| n IH]; intros s N a b; [lia |].
  destruct (largest_is_one (fun choice => gain_by value s choice a b) (to_choose s))
    as ([(X, s') |] & H & E).
  - intros Z. destruct (G s) as [T | T].
    + apply stop_to_choose in T. rewrite Z in T. destruct T.
    + destruct (moves s) as [| m l] eqn:M; [contradiction |].
      assert (Hm : In (Some m) (to_choose s)) by (apply moves_to_choose; rewrite M; simpl; auto).
      rewrite Z in Hm. destruct Hm.
  - apply moves_to_choose in H. pose proof (C s _ H) as L. simpl in L.
    assert (N' : (rank s' < n)%nat) by lia.
    exists (Run _ _ X fst snd (fun o => proj1_sig (IH s' N' (a * fst o) (b * snd o)))).
    split; [| split].
    + apply runs with s'.
      * unfold one_of_the_moves, pair_of. rewrite (map_ext _ (fun o => o)), map_id; [exact H |].
        intros o. symmetry. apply surjective_pairing.
      * intros o _. exact (proj1 (proj2_sig (IH s' N' (a * fst o) (b * snd o)))).
    + rewrite recursion by auto. unfold offers. rewrite <- E. unfold gains. simpl.
      rewrite sum_flat_map. apply sum_ext. intros o _.
      exact (proj1 (proj2 (proj2_sig (IH s' N' (a * fst o) (b * snd o))))).
    + intros v Hv. simpl in Hv. apply in_flat_map in Hv as (o & _ & Hv).
      exact (proj2 (proj2 (proj2_sig (IH s' N' (a * fst o) (b * snd o)))) v Hv).
  - apply stop_to_choose in H. exists (Stop _ _ ((a, b), s)). split; [| split].
    + apply stops. split; auto.
    + rewrite recursion by auto. unfold offers. rewrite <- E. unfold gains. simpl. ring.
    + intros v [<- | []]. reflexivity.
Qed.

Theorem attained : acyclic -> goes_on -> forall s,
  exists t : analyst (R * R) ((R * R) * State),
    keeps_to one_of_the_moves stops_there s t /\ gains t 1 1 = value s 1 1.
Proof.
  intros C G s. destruct (best C G (S (rank s)) s (Nat.lt_succ_diag_r _) 1 1) as (t & K & E & _).
  exists t. auto.
Qed.

(* -------------------------------------------------------------------------------- from below *)

(* What may be done from a state on, whatever was seen before: with A and B, it gains a A - b B at
   least.  Where one stops at the price E, A is 1 and B is e^E. *)
Inductive done : State -> R -> R -> Prop :=
  | stopping_there s A B : may_stop s = true ->
      (forall a b, 0 <= a -> 0 <= b -> a * A - b * B <= gain s a b) -> done s A B
  | nothing s : done s 0 0
  | going_on s s' (X : list ((R * R) * (R * R))) : In (map fst X, s') (moves s) ->
      (forall o AB, In (o, AB) X -> done s' (fst AB) (snd AB)) ->
      done s (sum (fun oAB => fst (fst oAB) * fst (snd oAB)) X)
        (sum (fun oAB => snd (fst oAB) * snd (snd oAB)) X)
  | rounded s A B A' B' : A' <= A -> B <= B' -> done s A B -> done s A' B'.

Lemma value_nonneg : (forall s a b, 0 <= gain s a b) -> forall n s a b, 0 <= within_moves n s a b.
Proof.
  intros N. induction n as [| n IH]; intros s a b; simpl; [lra |]. unfold offers.
  destruct (to_choose s) as [| c l] eqn:E; [simpl; lra |].
  apply Rle_trans with (gain_by (within_moves n) s c a b).
  - destruct c as [(X, s') |]; simpl; [apply sum_nonneg; intros; apply IH | apply N].
  - apply largest_above. simpl. auto.
Qed.

Theorem from_below : acyclic -> moves_have_pairs -> (forall s, sublinear (gain s)) ->
  (forall s a b, 0 <= gain s a b) ->
  forall s A B, done s A B -> forall a b, 0 <= a -> 0 <= b -> a * A - b * B <= value s a b.
Proof.
  intros C P G N s A B D. pose proof (induction_covers C P G) as V.
  induction D as [s A B E H | s | s s' X E D IH | s A B A' B' HA HB D IH]; intros a b a0 b0.
  - apply Rle_trans with (gain s a b); [auto | apply (at_stops _ _ V); auto].
  - rewrite !Rmult_0_r, Rminus_0_r. apply value_nonneg, N.
  - eapply Rle_trans; [| apply (at_moves _ _ V s (map fst X) s'); auto].
    rewrite <- !sum_scale, <- sum_minus, sum_map. apply sum_le. intros (o, AB) Ho.
    destruct (P s (map fst X, s') E o (in_map fst X (o, AB) Ho)) as (p0 & q0). simpl in *.
    eapply Rle_trans; [| apply (IH o AB Ho); apply Rmult_le_pos; auto].
    apply Req_le. ring.
  - eapply Rle_trans; [| apply IH; auto].
    assert (a * A' <= a * A) by (apply Rmult_le_compat_l; auto).
    assert (b * B <= b * B') by (apply Rmult_le_compat_l; auto). lra.
Qed.

End Graphs.

(* ------------------------------------------------------------------------ one who walks away *)

(* A way from a state to another by some moves. *)
Inductive leads_to {State : Type} (move : State -> pair -> State -> Prop) : State -> State -> Prop :=
  | here s : leads_to move s s
  | further s X s' s'' : move s X s' -> is_law X -> leads_to move s' s'' -> leads_to move s s''.

Lemma gain_ahead : forall State may_stop gain move W, covers State may_stop gain move W ->
  forall s s', leads_to move s s' -> may_stop s' = true ->
  forall a b, 0 <= a -> 0 <= b -> gain s' a b <= W s a b.
Proof.
  intros State may_stop gain move W C s s' L T. induction L as [s | s X s' s'' M (P & E) L IH];
    intros a b A0 B0; [apply (at_stops _ _ _ _ _ C); auto |].
  eapply Rle_trans; [| apply (at_moves _ _ _ _ _ C s X s'); auto].
  eapply Rle_trans; [apply (IH T); auto |].
  pose proof (joined (fun p q => W s' (a * p) (b * q)) X
    (sublinear_left _ a b (is_sublinear _ _ _ _ _ C s') A0 B0) P) as J.
  rewrite E in J. simpl in J. rewrite !Rmult_1_r in J. exact J.
Qed.

Theorem walking_away : forall State may_stop gain may_stop' gain' move W,
  covers State may_stop gain move W ->
  (forall s, may_stop' s = true -> exists s',
    leads_to move s s' /\ may_stop s' = true /\ gain' s = gain s') ->
  covers State may_stop' gain' move W.
Proof.
  intros State may_stop gain may_stop' gain' move W C H. split.
  - apply (is_sublinear _ _ _ _ _ C).
  - intros s a b T A0 B0. destruct (H s T) as (s' & L & T' & ->).
    apply (gain_ahead State may_stop gain move W C s s' L T'); auto.
  - apply (at_moves _ _ _ _ _ C).
Qed.

(* ------------------------------------------------------------- moves that are still running *)

(* What has been begun and not yet answered; whether the end was chosen; and the state.  To begin a
   move, or to choose the end, reveals nothing by itself. *)
Definition at_once (State : Type) : Type := (list pair * (bool * State))%type.

Inductive still {State : Type} (may_stop : State -> bool) (move : State -> pair -> State -> Prop) :
    at_once State -> pair -> at_once State -> Prop :=
  | begins begun s X s' : move s X s' -> is_law X ->
      still may_stop move (begun, (false, s)) [(1, 1)] (X :: begun, (false, s'))
  | ends_here begun s : may_stop s = true ->
      still may_stop move (begun, (false, s)) [(1, 1)] (begun, (true, s))
  | answers before X later ended s :
      still may_stop move (before ++ X :: later, (ended, s)) X (before ++ later, (ended, s)).

(* Nobody shows anything before the end was chosen; what has not answered by then may never do. *)
Definition after_the_end {State A : Type} (w : at_once State) (v : A * State) : Prop :=
  fst (snd w) = true /\ snd v = snd (snd w).

Lemma ahead_monotone : forall begun phi psi a b, (forall X, In X begun -> is_pair X) ->
  (forall a b, 0 <= a -> 0 <= b -> phi a b <= psi a b) -> 0 <= a -> 0 <= b ->
  ahead phi begun a b <= ahead psi begun a b.
Proof.
  induction begun as [| X begun IH]; intros phi psi a b P H A0 B0; simpl; [auto |].
  apply sum_le. intros o Ho. destruct (P X (or_introl eq_refl) o Ho).
  apply IH; auto; [| apply Rmult_le_pos; auto | apply Rmult_le_pos; auto].
  intros Y HY. apply P. simpl. auto.
Qed.

(* A move whose outputs come last of all. *)
Lemma ahead_last : forall begun phi X a b,
  ahead phi (X :: begun) a b
  = ahead (fun p q => sum (fun o => phi (p * fst o) (q * snd o)) X) begun a b.
Proof.
  induction begun as [| Y begun IH]; intros phi X a b; [reflexivity |].
  change (sum (fun o => sum (fun o' => ahead phi begun (a * fst o * fst o') (b * snd o * snd o')) Y) X
    = sum (fun o' => ahead (fun p q => sum (fun o => phi (p * fst o) (q * snd o)) X) begun
        (a * fst o') (b * snd o')) Y).
  rewrite sum_swap. apply sum_ext. intros o' _. rewrite <- IH. simpl. apply sum_ext. intros o _.
  f_equal; ring.
Qed.

Theorem overtaken : forall State may_stop gain move W,
  covers State may_stop gain move W -> (forall s, sublinear (gain s)) ->
  forall (O A : Type) s (t : analyst O (A * State)),
  keeps_to (below (still may_stop move)) after_the_end ([], (false, s)) t ->
  gains State gain t 1 1 <= W s 1 1.
Proof.
  intros State may_stop gain move W C G O A s t K.
  pose (U := fun (w : at_once State) (a b : R) =>
    ahead (if fst (snd w) then gain (snd (snd w)) else W (snd (snd w))) (fst w) a b).
  pose (fair := fun (w : at_once State) => forall X, In X (fst w) -> is_law X).
  assert (L : forall (ended : bool) s0, sublinear (if ended then gain s0 else W s0)).
  { intros [|] s0; [apply G | apply (is_sublinear _ _ _ _ _ C)]. }
  change (gains State gain t 1 1 <= U ([], (false, s)) 1 1).
  apply (bounded O (A * State) (at_once State) (still may_stop move) after_the_end
    (fun v => gain (snd v)) U fair); auto using Rle_0_1.
  - intros (begun, (ended, s0)) F. apply ahead_sublinear; [| apply L].
    intros X HX. apply (F X HX).
  - intros (begun, (ended, s0)) v F (E & E') a b A0 B0. simpl in *. subst ended s0.
    unfold U. simpl. apply left_over; auto.
  - intros w X w' F M. destruct M as [begun s0 X s' M N | begun s0 T | before X later ended s0].
    + split; [intros Y [<- | HY]; [exact N | apply F, HY] |].
      intros a b A0 B0. simpl. rewrite Rplus_0_r, !Rmult_1_r. unfold U.
      change (ahead (W s') (X :: begun) a b <= ahead (W s0) begun a b). rewrite ahead_last.
      apply ahead_monotone; auto; [intros Y HY; apply (F Y HY) |].
      intros p q p0 q0. apply (at_moves _ _ _ _ _ C s0 X s'); auto.
    + split; [exact F |]. intros a b A0 B0. simpl. rewrite Rplus_0_r, !Rmult_1_r. unfold U. simpl.
      apply ahead_monotone; auto; [intros Y HY; apply (F Y HY) |].
      intros p q p0 q0. apply (at_stops _ _ _ _ _ C); auto.
    + split.
      * intros Y HY. apply F. simpl in *. apply in_app_or in HY. apply in_or_app. simpl. tauto.
      * intros a b _ _. unfold U. simpl. rewrite ahead_first. lra.
  - intros X [].
Qed.

(* --------------------------------------------------------------------- prices of states *)

Section Prices.

Variable State : Type.
Variable may_stop : State -> bool.
Variable price : State -> R.  (* where one may stop *)

Definition gain_at (s : State) : R -> R -> R := payoff (price s).

(* Probability that the view is in S under x, and the same under x' times e^price of its state. *)
Definition chance_of {O A : Type} (t : analyst O (A * State)) (S : A * State -> bool) : R :=
  sum (fun v => when (S (fst v)) (fst (snd v))) (views O (A * State) t 1 1).
Definition charged {O A : Type} (t : analyst O (A * State)) (S : A * State -> bool) : R :=
  sum (fun v => when (S (fst v)) (exp (price (snd (fst v))) * snd (snd v)))
    (views O (A * State) t 1 1).

Lemma charged_and_gained : forall (O A : Type) (t : analyst O (A * State)) S,
  chance_of t S <= gains State gain_at t 1 1 + charged t S.
Proof.
  intros O A t S. unfold chance_of, charged, gains.
  rewrite <- sum_plus. apply sum_le. intros v _. unfold gain_at, payoff.
  pose proof (pos_ge (fst (snd v) - exp (price (snd (fst v))) * snd (snd v))).
  pose proof (pos_nonneg (fst (snd v) - exp (price (snd (fst v))) * snd (snd v))).
  unfold when. destruct (S (fst v)); lra.
Qed.

Theorem prices : forall (O A : Type) move W s (t : analyst O (A * State)),
  covers State may_stop gain_at move W ->
  keeps_to (below move) (stops_there State may_stop) s t ->
  forall S, chance_of t S <= W s 1 1 + charged t S.
Proof.
  intros O A move W s t C K S. eapply Rle_trans; [apply charged_and_gained |].
  apply Rplus_le_compat_r, (choices State may_stop gain_at O A move W s t C K).
Qed.

Theorem prices_overtaken : forall (O A : Type) move W s (t : analyst O (A * State)),
  covers State may_stop gain_at move W ->
  keeps_to (below (still may_stop move)) after_the_end ([], (false, s)) t ->
  forall S, chance_of t S <= W s 1 1 + charged t S.
Proof.
  intros O A move W s t C K S. eapply Rle_trans; [apply charged_and_gained |].
  apply Rplus_le_compat_r, (overtaken State may_stop gain_at move W C); auto.
  intros s0. unfold gain_at, payoff. apply delta_sublinear.
Qed.

Theorem prices_attained : forall moves rank,
  acyclic State moves rank -> goes_on State may_stop moves -> forall s,
  exists (t : analyst (R * R) ((R * R) * State)) S,
    keeps_to (one_of_the_moves State moves) (stops_there State may_stop) s t
    /\ chance_of t S = value State may_stop gain_at moves rank s 1 1 + charged t S.
Proof.
  intros moves rank C G s.
  destruct (best State may_stop gain_at moves rank C G (S (rank s)) s (Nat.lt_succ_diag_r _) 1 1)
    as (t & K & E & W).
  exists t, (fun v => at_least (fst (fst v)) (exp (price (snd v)) * snd (fst v))).
  split; [exact K |]. rewrite <- E. unfold chance_of, charged, gains.
  rewrite <- sum_plus. apply sum_ext. intros v Hv. rewrite (W v Hv).
  unfold gain_at. rewrite <- at_the_payoff. unfold when. destruct (at_least _ _); ring.
Qed.

End Prices.

Print Assumptions families.
Print Assumptions families_private.
Print Assumptions joint_by_deltas.
Print Assumptions two_ends.
Print Assumptions bounded_range.
Print Assumptions choices.
Print Assumptions induction_covers.
Print Assumptions attained.
Print Assumptions from_below.
Print Assumptions walking_away.
Print Assumptions overtaken.
Print Assumptions prices.
Print Assumptions prices_overtaken.
Print Assumptions prices_attained.
