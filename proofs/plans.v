(* A plan: mechanisms that are declared in advance may run in any order, chosen as one goes.

   IN PLAIN WORDS.  A plan is a list of pairs.  An analyst runs mechanisms one after the other, each
   dominated by one of the pairs that are left (order.v), which is then used up.  Which one comes next,
   and what it asks, may depend on all that was seen.  In between there may be anything that is as
   likely under x as under x'.  The analyst stops at any time, with pairs left over.

   Theorem any_order:     every f-divergence of all that is seen is at most that of all pairs together.
   Theorem plan_private:  all that is seen is (epsilon, delta)-DP for every epsilon, where delta is that
                          of all pairs together, in both directions.

   Source: the lemma in the docstring of PlanRule in src/tightbudget/output_dp/pricing.py; here proved
   by induction over the analyst, with sublinear functions. *)

From Coq Require Import Reals Lra List Bool.
From Tightbudget Require Import sums order.
Import ListNotations.
Open Scope R_scope.

Section Plans.

Variable O : Type.  (* outputs *)
Variable A : Type.  (* what a view shows *)

(* One who stops and shows `a`; or runs one mechanism and goes on in a way that depends on its
   output.  p and q are its probabilities under x and x'. *)
Inductive analyst :=
  | Stop (a : A)
  | Run (outputs : list O) (p q : O -> R) (next : O -> analyst).

(* All views: what each shows, and its probabilities times a and b. *)
Fixpoint views (t : analyst) (a b : R) : list (A * (R * R)) :=
  match t with
  | Stop s => [(s, (a, b))]
  | Run outs p q next => flat_map (fun o => views (next o) (a * p o) (b * q o)) outs
  end.

Definition pair_of (outs : list O) (p q : O -> R) : pair := map (fun o => (p o, q o)) outs.

(* The probabilities add up to 1 under x and x'. *)
Definition is_law (X : pair) : Prop := is_pair X /\ total X = (1, 1).

(* What runs is dominated by a pair that is left, or the same under x and x'. *)
Inductive follows : list pair -> analyst -> Prop :=
  | stops plan s : follows plan (Stop s)
  | runs before X later outs p q next :
      is_pair (pair_of outs p q) -> dominated (pair_of outs p q) X ->
      (forall o, In o outs -> follows (before ++ later) (next o)) ->
      follows (before ++ X :: later) (Run outs p q next)
  | reveals_nothing plan outs p next :
      is_law (pair_of outs p p) ->
      (forall o, In o outs -> follows plan (next o)) ->
      follows plan (Run outs p p next).

Fixpoint together (plan : list pair) : pair :=
  match plan with [] => [(1, 1)] | X :: plan => product X (together plan) end.

(* -------------------------------------------------------------------------------- the proof *)

(* The divergence of all pairs together, where what was seen has the probabilities a and b. *)
Fixpoint ahead (phi : R -> R -> R) (plan : list pair) (a b : R) : R :=
  match plan with
  | [] => phi a b
  | X :: plan => sum (fun o => ahead phi plan (a * fst o) (b * snd o)) X
  end.

Lemma ahead_together : forall plan phi a b,
  ahead phi plan a b = sum (fun o => phi (a * fst o) (b * snd o)) (together plan).
Proof.
  induction plan as [| X plan IH]; intros phi a b; simpl.
  - rewrite !Rmult_1_r. ring.
  - unfold product. rewrite sum_flat_map. apply sum_ext. intros o _.
    rewrite sum_map, IH. simpl. apply sum_ext. intros o' _. f_equal; ring.
Qed.

Lemma ahead_sublinear : forall plan phi, (forall X, In X plan -> is_pair X) ->
  sublinear phi -> sublinear (ahead phi plan).
Proof.
  induction plan as [| X plan IH]; intros phi P H; simpl; [exact H |].
  assert (L : forall o, In o X -> sublinear (fun a b => ahead phi plan (a * fst o) (b * snd o))).
  { intros o Ho. destruct (P X (or_introl eq_refl) o Ho).
    apply sublinear_right; auto. apply IH; auto. intros Y HY. apply P. simpl. auto. }
  split.
  - intros k p q K p0 q0. rewrite <- sum_scale. apply sum_ext. intros o Ho.
    apply (homogeneous _ (L o Ho)); auto.
  - intros p q p' q' p0 q0 p0' q0'. rewrite <- sum_plus. apply sum_le. intros o Ho.
    apply (subadditive _ (L o Ho)); auto.
Qed.

(* The order of the pairs does not matter: any one of them may come first. *)
Lemma ahead_first : forall before X later phi a b,
  ahead phi (before ++ X :: later) a b
  = sum (fun o => ahead phi (before ++ later) (a * fst o) (b * snd o)) X.
Proof.
  induction before as [| Y before IH]; intros X later phi a b; simpl; [reflexivity |].
  rewrite (sum_ext _ (fun y => sum (fun o => ahead phi (before ++ later)
      (a * fst y * fst o) (b * snd y * snd o)) X) Y) by (intros; apply IH).
  rewrite sum_swap. apply sum_ext. intros o _. apply sum_ext. intros y _.
  f_equal; ring.
Qed.

(* Pairs that are left over do no harm: to see nothing is to merge all that there is to see. *)
Lemma left_over : forall plan phi a b, (forall X, In X plan -> is_law X) -> sublinear phi ->
  0 <= a -> 0 <= b -> phi a b <= ahead phi plan a b.
Proof.
  induction plan as [| X plan IH]; intros phi a b P H A0 B0; simpl; [lra |].
  destruct (P X (or_introl eq_refl)) as (N & T).
  assert (L : forall Y, In Y plan -> is_law Y) by (intros; apply P; simpl; auto).
  apply Rle_trans with (ahead phi plan a b); [apply IH; auto |].
  assert (S : sublinear (ahead phi plan)).
  { apply ahead_sublinear; auto. intros Y HY. apply (L Y HY). }
  pose proof (joined (fun p q => ahead phi plan (a * p) (b * q)) X
    (sublinear_left _ a b S A0 B0) N) as J.
  rewrite T in J. simpl in J. rewrite !Rmult_1_r in J. exact J.
Qed.

Lemma seen_is_ahead : forall phi plan t, sublinear phi -> follows plan t ->
  (forall X, In X plan -> is_law X) -> forall a b, 0 <= a -> 0 <= b ->
  sum (fun v => phi (fst (snd v)) (snd (snd v))) (views t a b) <= ahead phi plan a b.
Proof.
  intros phi plan t H F. induction F as [plan s | before X later outs p q next N W F IH
    | plan outs p next (N & T) F IH]; intros P a b A0 B0; simpl.
  - rewrite Rplus_0_r. apply left_over; auto.
  - assert (P' : forall Y, In Y (before ++ later) -> is_law Y).
    { intros Y HY. apply P. apply in_app_or in HY. apply in_or_app. simpl. tauto. }
    assert (S : sublinear (ahead phi (before ++ later))).
    { apply ahead_sublinear; auto. intros Y HY. apply (P' Y HY). }
    rewrite sum_flat_map, ahead_first.
    apply Rle_trans with (sum (fun o => ahead phi (before ++ later) (a * p o) (b * q o)) outs).
    + apply sum_le. intros o Ho.
      assert (0 <= p o /\ 0 <= q o) as (?, ?).
      { apply (N (p o, q o)). unfold pair_of. apply in_map_iff. exists o. auto. }
      apply IH; auto; apply Rmult_le_pos; auto.
    + specialize (W _ (sublinear_left _ a b S A0 B0)). unfold divergence, pair_of in W.
      rewrite sum_map in W. exact W.
  - assert (S : sublinear (ahead phi plan)).
    { apply ahead_sublinear; auto. intros Y HY. apply (P Y HY). }
    assert (N' : forall o, In o outs -> 0 <= p o).
    { intros o Ho. apply (N (p o, p o)). unfold pair_of. apply in_map_iff. exists o. auto. }
    rewrite sum_flat_map.
    apply Rle_trans with (sum (fun o => p o * ahead phi plan a b) outs).
    + apply sum_le. intros o Ho. specialize (N' o Ho).
      rewrite <- (homogeneous _ S (p o) a b) by auto.
      rewrite (Rmult_comm (p o) a), (Rmult_comm (p o) b).
      apply IH; auto; apply Rmult_le_pos; auto.
    + rewrite sum_scale_right. unfold total, pair_of in T. rewrite !sum_map in T. simpl in T.
      injection T as T _. change (sum p outs = 1) in T. rewrite T. lra.
Qed.

(* ------------------------------------------------------------------------------ the theorems *)

Theorem any_order : forall plan t, (forall X, In X plan -> is_law X) -> follows plan t ->
  dominated (map snd (views t 1 1)) (together plan).
Proof.
  intros plan t P F phi H.
  pose proof (seen_is_ahead phi plan t H F P 1 1 Rle_0_1 Rle_0_1) as E.
  rewrite ahead_together in E. unfold divergence. rewrite sum_map.
  eapply Rle_trans; [exact E |]. apply Req_le, sum_ext. intros o _. f_equal; ring.
Qed.

(* What a pair dominates is (epsilon, delta)-DP at each epsilon and its delta there. *)
Lemma private : forall t epsilon Y, dominated (map snd (views t 1 1)) Y ->
  forall S : A -> bool,
    let under_x := sum (fun v => when (S (fst v)) (fst (snd v))) (views t 1 1) in
    let under_x' := sum (fun v => when (S (fst v)) (snd (snd v))) (views t 1 1) in
    under_x <= delta_at epsilon Y + exp epsilon * under_x'
    /\ under_x' <= delta_back_at epsilon Y + exp epsilon * under_x.
Proof.
  intros t epsilon Y D S under_x under_x'.
  destruct (deltas _ _ D epsilon) as (forth & back).
  unfold delta_at in forth at 1. unfold delta_back_at in back at 1.
  rewrite sum_map in forth, back.
  subst under_x under_x'. split.
  - eapply Rle_trans; [| apply Rplus_le_compat_r; exact forth].
    rewrite <- sum_scale, <- sum_plus. apply sum_le. intros v _.
    pose proof (pos_ge (fst (snd v) - exp epsilon * snd (snd v))).
    pose proof (pos_nonneg (fst (snd v) - exp epsilon * snd (snd v))).
    unfold when. destruct (S (fst v)); lra.
  - eapply Rle_trans; [| apply Rplus_le_compat_r; exact back].
    rewrite <- sum_scale, <- sum_plus. apply sum_le. intros v _.
    pose proof (pos_ge (snd (snd v) - exp epsilon * fst (snd v))).
    pose proof (pos_nonneg (snd (snd v) - exp epsilon * fst (snd v))).
    unfold when. destruct (S (fst v)); lra.
Qed.

Theorem plan_private : forall plan t epsilon,
  (forall X, In X plan -> is_law X) -> follows plan t ->
  forall S : A -> bool,
    let under_x := sum (fun v => when (S (fst v)) (fst (snd v))) (views t 1 1) in
    let under_x' := sum (fun v => when (S (fst v)) (snd (snd v))) (views t 1 1) in
    under_x <= delta_at epsilon (together plan) + exp epsilon * under_x'
    /\ under_x' <= delta_back_at epsilon (together plan) + exp epsilon * under_x.
Proof. intros plan t epsilon P F. apply private, any_order; auto. Qed.

End Plans.

Print Assumptions any_order.
Print Assumptions plan_private.
