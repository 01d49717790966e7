(* Interactive mechanisms that are open side by side, each with delta 0.

   IN PLAIN WORDS.  An interactive mechanism answers many questions; each answer may depend on all that
   it was asked and answered before.  Several of them are open at once, and the analyst asks now this
   one, now that one, by all that was seen so far.  Each keeps its promise with delta 0: every
   conversation with it is at most e^price times as likely under x as under x', where the price may
   depend on the whole conversation.

   Theorem side_by_side:  every view is at most e^(sum of the prices of its conversations) times as
                          likely under x as under x'.
   Theorem capped:        if this sum is at most epsilon in every view, all that is seen is
                          (epsilon, 0)-DP. *)

From Coq Require Import Reals Lra List Bool PeanoNat.
From Tightbudget Require Import sums.
Import ListNotations.
Open Scope R_scope.

Section Conversations.

Variable D : Type.         (* data sets *)
Variable Question : Type.
Variable Answer : Type.
Variable Shown : Type.     (* what a view shows *)

(* A conversation, the latest question and answer first. *)
Definition conversation := list (Question * Answer).

Variable mechanisms : list nat.
Variable mechanisms_distinct : NoDup mechanisms.

(* The probability of an answer of mechanism i after a conversation, and its possible answers. *)
Variable answer_chance : nat -> D -> conversation -> Question -> Answer -> R.
Variable answers : nat -> conversation -> Question -> list Answer.
Variable answer_chance_nonneg : forall i x c q a, 0 <= answer_chance i x c q a.

Variable price : nat -> conversation -> R.

(* The probability that mechanism i gives the answers of a conversation to its questions. *)
Fixpoint likelihood (i : nat) (x : D) (c : conversation) : R :=
  match c with
  | [] => 1
  | (q, a) :: before => answer_chance i x before q a * likelihood i x before
  end.

Definition promised (x x' : D) : Prop := forall i, In i mechanisms -> forall c,
  likelihood i x c <= exp (price i c) * likelihood i x' c.

Inductive analyst :=
  | Stop (s : Shown)
  | AskNext (i : nat) (q : Question) (next : Answer -> analyst).

(* The analyst asks those mechanisms alone. *)
Fixpoint asks_these (t : analyst) : Prop :=
  match t with
  | Stop _ => True
  | AskNext i _ next => In i mechanisms /\ forall a, asks_these (next a)
  end.

(* The conversations so far, one for each mechanism. *)
Definition open_ := nat -> conversation.

Definition longer (cs : open_) (i : nat) (q : Question) (a : Answer) : open_ :=
  fun j => if Nat.eq_dec j i then (q, a) :: cs j else cs j.

Record view := View { shown : Shown; chance : D -> R; conversations : open_ }.

Fixpoint views (t : analyst) (cs : open_) : list view :=
  match t with
  | Stop s => [View s (fun _ => 1) cs]
  | AskNext i q next =>
      flat_map (fun a => map (fun v => View (shown v)
                  (fun x => answer_chance i x (cs i) q a * chance v x) (conversations v))
                (views (next a) (longer cs i q a)))
        (answers i (cs i) q)
  end.

Fixpoint product (f : nat -> R) (l : list nat) : R :=
  match l with [] => 1 | i :: rest => f i * product f rest end.

Lemma product_ext : forall f g l, (forall i, In i l -> f i = g i) -> product f l = product g l.
Proof.
  induction l as [| i l IH]; simpl; intros H; auto. rewrite (H i), IH; auto.
Qed.

Lemma product_changed_at : forall f g i c l, NoDup l -> In i l -> g i = c * f i ->
  (forall j, j <> i -> g j = f j) -> product g l = c * product f l.
Proof.
  intros f g i c l. induction l as [| j l IH]; simpl; intros N H E K; [contradiction |].
  inversion N as [| ? ? fresh N']; subst. destruct H as [-> | H].
  - rewrite E, (product_ext g f l); [ring |]. intros k Hk. apply K. intros ->. auto.
  - rewrite IH; auto. rewrite (K j); [ring |]. intros ->. auto.
Qed.

Lemma product_nonneg : forall f l, (forall i, In i l -> 0 <= f i) -> 0 <= product f l.
Proof.
  induction l as [| i l IH]; simpl; intros H; [lra |]. apply Rmult_le_pos; auto.
Qed.

Lemma product_le : forall f g l, (forall i, In i l -> 0 <= f i <= g i) ->
  product f l <= product g l.
Proof.
  induction l as [| i l IH]; simpl; intros H; [lra |].
  apply Rmult_le_compat; try apply H; auto. apply product_nonneg. intros. apply H. auto.
Qed.

Lemma product_exp : forall f g l,
  product (fun i => exp (f i) * g i) l = exp (sum f l) * product g l.
Proof.
  induction l as [| i l IH]; simpl; [rewrite exp_0; ring |].
  rewrite IH, exp_plus. ring.
Qed.

(* Likelihoods of conversations multiply, in whatever order the questions came. *)
Definition all_likely (x : D) (cs : open_) : R :=
  product (fun i => likelihood i x (cs i)) mechanisms.

Lemma likelihood_nonneg : forall i x c, 0 <= likelihood i x c.
Proof.
  induction c as [| (q, a) c IH]; simpl; [lra |]. apply Rmult_le_pos; auto.
Qed.

Lemma chances_multiply : forall x t cs, asks_these t -> forall v, In v (views t cs) ->
  chance v x * all_likely x cs = all_likely x (conversations v).
Proof.
  induction t as [s | i q next IH]; intros cs A v Hv; simpl in Hv.
  - destruct Hv as [<- | []]. simpl. ring.
  - destruct A as (Hi & A). apply in_flat_map in Hv as (a & Ha & Hv).
    apply in_map_iff in Hv as (w & <- & Hw). simpl.
    rewrite <- (IH a _ (A a) w Hw). unfold all_likely.
    rewrite (product_changed_at (fun j => likelihood j x (cs j))
      (fun j => likelihood j x (longer cs i q a j)) i (answer_chance i x (cs i) q a)); auto.
    + ring.
    + unfold longer. destruct (Nat.eq_dec i i); [reflexivity | congruence].
    + intros j J. unfold longer. destruct (Nat.eq_dec j i); [congruence | reflexivity].
Qed.

Definition none_yet : open_ := fun _ => [].

Lemma none_likely : forall x, all_likely x none_yet = 1.
Proof.
  intros. unfold all_likely. simpl. induction mechanisms as [| i l IH]; simpl; [reflexivity |].
  inversion mechanisms_distinct; subst. rewrite IH; auto. ring.
Qed.

Definition paid (v : view) : R := sum (fun i => price i (conversations v i)) mechanisms.

Theorem side_by_side : forall x x' t, promised x x' -> asks_these t ->
  forall v, In v (views t none_yet) -> chance v x <= exp (paid v) * chance v x'.
Proof.
  intros x x' t P A v Hv.
  pose proof (chances_multiply x t none_yet A v Hv) as E.
  pose proof (chances_multiply x' t none_yet A v Hv) as E'.
  rewrite none_likely, Rmult_1_r in E, E'. rewrite E, E'.
  unfold all_likely, paid. rewrite <- product_exp. apply product_le.
  intros i Hi. split; [apply likelihood_nonneg | apply (P i Hi)].
Qed.

Theorem capped : forall x x' t epsilon, promised x x' -> asks_these t ->
  (forall v, In v (views t none_yet) -> paid v <= epsilon) ->
  forall S : Shown -> bool,
    sum (fun v => when (S (shown v)) (chance v x)) (views t none_yet)
    <= exp epsilon * sum (fun v => when (S (shown v)) (chance v x')) (views t none_yet).
Proof.
  intros x x' t epsilon P A C S. rewrite <- sum_scale. apply sum_le. intros v Hv.
  pose proof (side_by_side x x' t P A v Hv) as L. specialize (C v Hv).
  assert (exp (paid v) <= exp epsilon).
  { destruct C as [C | ->]; [left; apply exp_increasing; exact C | right; reflexivity]. }
  assert (0 <= chance v x').
  { pose proof (chances_multiply x' t none_yet A v Hv) as E.
    rewrite none_likely, Rmult_1_r in E. rewrite E. apply product_nonneg.
    intros. apply likelihood_nonneg. }
  unfold when. destruct (S (shown v)); nra.
Qed.

End Conversations.

Print Assumptions side_by_side.
Print Assumptions capped.
