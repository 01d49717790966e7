(* Finite sums of real numbers over lists, and the positive part of a number.

   Every theorem of this folder is about finite sets of outputs; this file has the few facts on
   finite sums that their proofs use. *)

From Coq Require Import Reals Lra List Bool Permutation.
Import ListNotations.
Open Scope R_scope.

(* The sum of f over a list. *)
Fixpoint sum {A : Type} (f : A -> R) (l : list A) : R :=
  match l with
  | [] => 0
  | a :: rest => f a + sum f rest
  end.

(* The positive part of a number: x if it is above 0, and 0 if it is not. *)
Definition pos (x : R) : R := Rmax 0 x.

(* The number a where the condition holds, and 0 where it does not. *)
Definition when (condition : bool) (a : R) : R := if condition then a else 0.

Section Sums.
Context {A B : Type}.
Implicit Types (f g : A -> R) (l : list A).

Lemma sum_ext : forall f g l, (forall a, In a l -> f a = g a) -> sum f l = sum g l.
Proof.
  induction l as [| a l IH]; simpl; intros H; auto.
  rewrite (H a), IH; auto.
Qed.

Lemma sum_le : forall f g l, (forall a, In a l -> f a <= g a) -> sum f l <= sum g l.
Proof.
  induction l as [| a l IH]; simpl; intros H; [lra |].
  assert (f a <= g a) by auto. assert (sum f l <= sum g l) by auto. lra.
Qed.

Lemma sum_nonneg : forall f l, (forall a, In a l -> 0 <= f a) -> 0 <= sum f l.
Proof.
  induction l as [| a l IH]; simpl; intros H; [lra |].
  assert (0 <= f a) by auto. assert (0 <= sum f l) by auto. lra.
Qed.

Lemma sum_plus : forall f g l, sum (fun a => f a + g a) l = sum f l + sum g l.
Proof. induction l as [| a l IH]; simpl; lra. Qed.

Lemma sum_minus : forall f g l, sum (fun a => f a - g a) l = sum f l - sum g l.
Proof. induction l as [| a l IH]; simpl; lra. Qed.

Lemma sum_scale : forall c f l, sum (fun a => c * f a) l = c * sum f l.
Proof. induction l as [| a l IH]; simpl; [| rewrite IH]; ring. Qed.

Lemma sum_scale_right : forall c f l, sum (fun a => f a * c) l = sum f l * c.
Proof. induction l as [| a l IH]; simpl; [| rewrite IH]; ring. Qed.

Lemma sum_zero : forall l, sum (fun _ => 0) l = 0.
Proof. induction l as [| a l IH]; simpl; lra. Qed.

Lemma sum_app : forall f l l', sum f (l ++ l') = sum f l + sum f l'.
Proof. induction l as [| a l IH]; simpl; intros; [| rewrite IH]; lra. Qed.

Lemma sum_map : forall f (h : B -> A) (l : list B), sum f (map h l) = sum (fun b => f (h b)) l.
Proof. induction l as [| b l IH]; simpl; [| rewrite IH]; reflexivity. Qed.

Lemma sum_flat_map : forall f (h : B -> list A) (l : list B),
  sum f (flat_map h l) = sum (fun b => sum f (h b)) l.
Proof. induction l as [| b l IH]; simpl; [| rewrite sum_app, IH]; reflexivity. Qed.

End Sums.

Lemma sum_swap : forall {A B : Type} (f : A -> B -> R) (l : list A) (l' : list B),
  sum (fun a => sum (fun b => f a b) l') l = sum (fun b => sum (fun a => f a b) l) l'.
Proof.
  induction l as [| a l IH]; simpl; intros.
  - symmetry. apply sum_zero.
  - rewrite IH, <- sum_plus. reflexivity.
Qed.

Lemma sum_permuted : forall {A : Type} (f : A -> R) l l', Permutation l l' -> sum f l = sum f l'.
Proof. induction 1; simpl; lra. Qed.

(* ----------------------------------------------------------------- the positive part *)

Lemma pos_nonneg : forall x, 0 <= pos x.
Proof. intro x. apply Rmax_l. Qed.

Lemma pos_ge : forall x, x <= pos x.
Proof. intro x. apply Rmax_r. Qed.

Lemma pos_of_nonneg : forall x, 0 <= x -> pos x = x.
Proof. intros x H. unfold pos. rewrite Rmax_right; lra. Qed.

Lemma pos_of_nonpos : forall x, x <= 0 -> pos x = 0.
Proof. intros x H. unfold pos. rewrite Rmax_left; lra. Qed.

Lemma pos_le : forall x y, x <= y -> 0 <= y -> pos x <= y.
Proof. intros x y H K. apply Rmax_lub; lra. Qed.

Lemma pos_scale : forall c x, 0 <= c -> pos (c * x) = c * pos x.
Proof.
  intros c x C. destruct (Rle_dec 0 x).
  - rewrite !pos_of_nonneg; nra.
  - rewrite !pos_of_nonpos; nra.
Qed.

(* ------------------------------------------------------- changing one summand of a sum *)

(* The list l with its element at place i replaced. *)
Fixpoint replace {A : Type} (i : nat) (new : A) (l : list A) : list A :=
  match l, i with
  | [], _ => []
  | _ :: rest, O => new :: rest
  | a :: rest, S j => a :: replace j new rest
  end.

Lemma sum_replace : forall {A : Type} (f : A -> R) i new old l,
  nth_error l i = Some old -> sum f (replace i new l) = sum f l - f old + f new.
Proof.
  induction i as [| i IH]; intros new old [| a l] H; simpl in *; try discriminate.
  - injection H as ->. ring.
  - rewrite (IH new old l H). ring.
Qed.

Lemma In_replace : forall {A : Type} i (new a : A) l, In a (replace i new l) -> a = new \/ In a l.
Proof.
  induction i as [| i IH]; intros new a [| b l] H; simpl in *; auto.
  - destruct H; auto.
  - destruct H as [H | H]; auto. destruct (IH _ _ _ H); auto.
Qed.

(* Two sums over distinct elements differ by what they differ by at the one element p. *)
Lemma sum_changed_at : forall {A : Type} (f g : A -> R) p l,
  NoDup l -> In p l -> (forall a, In a l -> a <> p -> f a = g a) ->
  sum g l = sum f l - f p + g p.
Proof.
  intros A f g p l. induction l as [| a l IH]; simpl; intros N H E; [contradiction |].
  inversion N as [| ? ? fresh N']; subst.
  destruct H as [-> | H].
  - rewrite (sum_ext g f l); [ring |].
    intros b Hb. symmetry. apply E; auto. intros ->. auto.
  - rewrite IH; auto. rewrite (E a); auto; [ring |].
    intros ->. auto.
Qed.
