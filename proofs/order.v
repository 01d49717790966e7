(* Which pair is worse: splitting outputs dominates, merging them is dominated.

   IN PLAIN WORDS.  A pair is a finite list of outputs, each with its probability p under x and q
   under x'.  One of them may be 0: an output with q = 0 is one of infinite loss.  A pair Y
   dominates X if every f-divergence of Y is at least that of X, in both directions: formally, the
   sum of phi(p, q) over the outputs, for every phi that is sublinear (phi(c p, c q) = c phi(p, q),
   phi(p + p', q + q') <= phi(p, q) + phi(p', q')).  The deltas at every epsilon are such sums.

   Theorem deltas:        a pair that dominates has a larger delta at each epsilon, both ways.
   Theorem curves:        a pair of the same total that has a larger delta at each epsilon dominates: the
                          deltas are enough, and those of one direction, too.
   Theorem merging:       joining outputs gives a pair that is dominated; so splitting one
                          output into several of the same total gives one that dominates.
   Theorem bucket_spread: all outputs of a bucket may be replaced by two outputs at its two
                          edges with the same two masses, by the formula of the code: this pair
                          has no negative mass, and it dominates.
   Theorem at_infinity:   an output may be moved to infinite loss (and its q to minus infinity).
   Theorem products:      domination survives composition.
   Theorem adaptive:      also where the second mechanism depends on the output of the first, if one
                          pair dominates all that it may be.
   Theorem repeated:      domination survives n runs.
   Theorem mixtures:      domination survives a public coin.

   A law is a list of values >= 0 with weights: the ratio p/q of a pair under x'.  A law is smaller in
   convex order than another if the expectation of each convex function is.

   Theorem spread_law:    replacing a value by two with the same mean gives a larger law.
   Theorem merge_law:     replacing several values by their mean gives a smaller law.
   Theorem sums_of_laws, products_of_laws, scaled_law, averages: the order survives independent sums,
                          independent products, multiples, and averages of n independent values.
   Theorem law_of_pair:   if a law is smaller in convex order, its pair is dominated.
   Theorem cut_law:       values may be cut down if the mean that is lost is put at infinity.

   Source: Shaked, Shanthikumar 2007, chapter 3; Doroshenko et al. 2022 (buckets). *)

From Coq Require Import Reals Lra List Bool Permutation.
From Tightbudget Require Import sums.
Import ListNotations.
Open Scope R_scope.

(* ---------------------------------------------------------------------------- pairs *)

Definition pair := list (R * R).  (* (p, q) of each output *)

Definition is_pair (X : pair) : Prop := forall o, In o X -> 0 <= fst o /\ 0 <= snd o.

Record sublinear (phi : R -> R -> R) : Prop := Sublinear {
  homogeneous : forall c p q, 0 <= c -> 0 <= p -> 0 <= q -> phi (c * p) (c * q) = c * phi p q;
  subadditive : forall p q p' q', 0 <= p -> 0 <= q -> 0 <= p' -> 0 <= q' ->
    phi (p + p') (q + q') <= phi p q + phi p' q' }.

Definition divergence (phi : R -> R -> R) (X : pair) : R := sum (fun o => phi (fst o) (snd o)) X.

Definition dominated (X Y : pair) : Prop :=
  forall phi, sublinear phi -> divergence phi X <= divergence phi Y.

(* Probability under x beyond e^epsilon times that under x', and the other way round. *)
Definition delta_at (epsilon : R) (X : pair) : R :=
  sum (fun o => pos (fst o - exp epsilon * snd o)) X.
Definition delta_back_at (epsilon : R) (X : pair) : R :=
  sum (fun o => pos (snd o - exp epsilon * fst o)) X.

(* All of a list of outputs as one output. *)
Definition total (X : pair) : R * R := (sum fst X, sum snd X).

Definition product (X Y : pair) : pair :=
  flat_map (fun o => map (fun o' => (fst o * fst o', snd o * snd o')) Y) X.

(* The composition with a second pair that depends on the output of the first. *)
Definition then_ (X : list ((R * R) * pair)) : pair :=
  flat_map (fun oY => map (fun o' => (fst (fst oY) * fst o', snd (fst oY) * snd o')) (snd oY)) X.

Fixpoint power (n : nat) (X : pair) : pair :=
  match n with O => [(1, 1)] | S m => product X (power m X) end.

Definition scaled (c : R) (X : pair) : pair := map (fun o => (c * fst o, c * snd o)) X.

Lemma pos_subadditive : forall a b, pos (a + b) <= pos a + pos b.
Proof.
  intros a b. pose proof (pos_ge a). pose proof (pos_ge b).
  pose proof (pos_nonneg a). pose proof (pos_nonneg b). apply pos_le; lra.
Qed.

Lemma delta_sublinear : forall c, sublinear (fun p q => pos (p - c * q)).
Proof.
  intros c. split; intros.
  - rewrite <- pos_scale by auto. f_equal. ring.
  - eapply Rle_trans; [| apply pos_subadditive]. apply Req_le. f_equal. ring.
Qed.

Lemma delta_back_sublinear : forall c, sublinear (fun p q => pos (q - c * p)).
Proof.
  intros c. split; intros.
  - rewrite <- pos_scale by auto. f_equal. ring.
  - eapply Rle_trans; [| apply pos_subadditive]. apply Req_le. f_equal. ring.
Qed.

Theorem deltas : forall X Y, dominated X Y -> forall epsilon,
  delta_at epsilon X <= delta_at epsilon Y /\ delta_back_at epsilon X <= delta_back_at epsilon Y.
Proof.
  intros X Y H epsilon. split.
  - apply (H _ (delta_sublinear (exp epsilon))).
  - apply (H _ (delta_back_sublinear (exp epsilon))).
Qed.

Lemma sublinear_zero : forall phi, sublinear phi -> phi 0 0 = 0.
Proof.
  intros phi H. pose proof (homogeneous phi H 0 0 0) as E.
  rewrite !Rmult_0_l in E. apply E; lra.
Qed.

Lemma total_nonneg : forall X, is_pair X -> 0 <= fst (total X) /\ 0 <= snd (total X).
Proof. intros X H. split; apply sum_nonneg; intros o Ho; apply (H o Ho). Qed.

Lemma is_pair_cons : forall o X, is_pair (o :: X) -> 0 <= fst o /\ 0 <= snd o /\ is_pair X.
Proof.
  intros o X H. split; [apply (H o) | split; [apply (H o) |]]; simpl; auto.
  intros o' Ho. apply H. simpl. auto.
Qed.

Lemma joined : forall phi X, sublinear phi -> is_pair X ->
  phi (fst (total X)) (snd (total X)) <= divergence phi X.
Proof.
  intros phi X H. induction X as [| o X IH]; intros P; unfold divergence in *; simpl.
  - rewrite sublinear_zero by auto. lra.
  - apply is_pair_cons in P as (Hp & Hq & P).
    pose proof (total_nonneg X P) as (Tp & Tq). simpl in *.
    eapply Rle_trans; [apply (subadditive phi H); auto |].
    specialize (IH P). lra.
Qed.

Theorem merging : forall groups, (forall X, In X groups -> is_pair X) ->
  dominated (map total groups) (concat groups).
Proof.
  intros groups P phi H. unfold divergence. rewrite sum_map.
  induction groups as [| X groups IH]; simpl; [lra |].
  rewrite sum_app. apply Rplus_le_compat.
  - apply (joined phi X H). apply P. simpl. auto.
  - apply IH. intros Y HY. apply P. simpl. auto.
Qed.

Theorem at_infinity : forall p q X, 0 <= p -> 0 <= q ->
  dominated ((p, q) :: X) ((p, 0) :: (0, q) :: X).
Proof.
  intros p q X Hp Hq phi H. unfold divergence. simpl.
  assert (phi p q <= phi p 0 + phi 0 q).
  { pose proof (subadditive phi H p 0 0 q). rewrite Rplus_0_r, Rplus_0_l in *. apply H0; lra. }
  lra.
Qed.

Lemma divergence_product : forall phi X Y, divergence phi (product X Y)
  = sum (fun o => divergence (fun p q => phi (fst o * p) (snd o * q)) Y) X.
Proof.
  intros. unfold divergence, product. rewrite sum_flat_map. apply sum_ext. intros o _.
  rewrite sum_map. reflexivity.
Qed.

Lemma sublinear_left : forall phi a b, sublinear phi -> 0 <= a -> 0 <= b ->
  sublinear (fun p q => phi (a * p) (b * q)).
Proof.
  intros phi a b H A B. split; intros.
  - rewrite <- (homogeneous phi H) by (try apply Rmult_le_pos; auto). f_equal; ring.
  - rewrite !Rmult_plus_distr_l. apply (subadditive phi H); apply Rmult_le_pos; auto.
Qed.

Lemma divergence_product_right : forall phi X Y, divergence phi (product X Y)
  = sum (fun o => divergence (fun p q => phi (p * fst o) (q * snd o)) X) Y.
Proof.
  intros. rewrite divergence_product. unfold divergence. apply sum_swap.
Qed.

Lemma sublinear_right : forall phi a b, sublinear phi -> 0 <= a -> 0 <= b ->
  sublinear (fun p q => phi (p * a) (q * b)).
Proof.
  intros phi a b H A B. split; intros.
  - rewrite <- (homogeneous phi H) by (try apply Rmult_le_pos; auto). f_equal; ring.
  - rewrite !Rmult_plus_distr_r. apply (subadditive phi H); apply Rmult_le_pos; auto.
Qed.

Theorem products : forall X X' Y Y', is_pair X -> is_pair Y' ->
  dominated X X' -> dominated Y Y' -> dominated (product X Y) (product X' Y').
Proof.
  intros X X' Y Y' P Q HX HY phi H.
  apply Rle_trans with (divergence phi (product X Y')).
  - rewrite !divergence_product. apply sum_le. intros o Ho. apply HY.
    destruct (P o Ho). apply sublinear_left; auto.
  - rewrite !divergence_product_right. apply sum_le. intros o Ho. apply HX.
    destruct (Q o Ho). apply sublinear_right; auto.
Qed.

Theorem adaptive : forall (X : list ((R * R) * pair)) X' Y',
  is_pair (map fst X) -> is_pair Y' ->
  dominated (map fst X) X' -> (forall o Y, In (o, Y) X -> dominated Y Y') ->
  dominated (then_ X) (product X' Y').
Proof.
  intros X X' Y' P Q HX HY phi H.
  apply Rle_trans with (divergence phi (product (map fst X) Y')).
  - rewrite divergence_product, sum_map. unfold divergence, then_. rewrite sum_flat_map.
    apply sum_le. intros (o, Y) Ho. simpl. rewrite sum_map. simpl.
    assert (R : 0 <= fst o /\ 0 <= snd o) by (apply P; apply (in_map fst X (o, Y) Ho)).
    destruct R. apply (HY o Y Ho (fun p q => phi (fst o * p) (snd o * q))).
    apply sublinear_left; auto.
  - rewrite !divergence_product_right. apply sum_le. intros o Ho. apply HX.
    destruct (Q o Ho). apply sublinear_right; auto.
Qed.

Lemma power_is_pair : forall n X, is_pair X -> is_pair (power n X).
Proof.
  induction n as [| n IH]; intros X P o H; simpl in H.
  - destruct H as [<- | []]. simpl. lra.
  - apply in_flat_map in H as (a & Ha & H). apply in_map_iff in H as (b & <- & Hb).
    destruct (P a Ha). destruct (IH X P b Hb). simpl. split; apply Rmult_le_pos; auto.
Qed.

Theorem repeated : forall n X Y, is_pair X -> is_pair Y ->
  dominated X Y -> dominated (power n X) (power n Y).
Proof.
  induction n as [| n IH]; intros X Y P Q H; simpl.
  - intros phi _. lra.
  - apply products; auto using power_is_pair.
Qed.

Theorem mixtures : forall c X X' Y Y', 0 <= c <= 1 ->
  is_pair X -> is_pair X' -> is_pair Y -> is_pair Y' ->
  dominated X X' -> dominated Y Y' ->
  dominated (scaled c X ++ scaled (1 - c) Y) (scaled c X' ++ scaled (1 - c) Y').
Proof.
  intros c X X' Y Y' C PX PX' PY PY' HX HY phi H.
  assert (E : forall a Z, 0 <= a -> is_pair Z ->
    divergence phi (scaled a Z) = a * divergence phi Z).
  { intros a Z A P. unfold divergence, scaled. rewrite sum_map, <- sum_scale.
    apply sum_ext. intros o Ho. destruct (P o Ho). simpl. apply (homogeneous phi H); auto. }
  unfold divergence in *. rewrite !sum_app. rewrite !E by (auto; lra).
  apply Rplus_le_compat; apply Rmult_le_compat_l; try lra; [apply HX | apply HY]; auto.
Qed.

(* --------------------------------------------------------------- deltas are enough *)

(* Convex on [0, 1]. *)
Definition bent (f : R -> R) : Prop := forall x y z, 0 <= x -> x <= y -> y <= z -> z <= 1 ->
  (z - x) * f y <= (z - y) * f x + (y - x) * f z.

(* Masses of any sign at places that rise from x on, to 1 at most. *)
Fixpoint rising (x : R) (l : list (R * R)) : Prop :=
  match l with [] => x <= 1 | a :: l => x <= snd a /\ rising (snd a) l end.

Lemma rising_below : forall l x, rising x l -> x <= 1.
Proof.
  induction l as [| a l IH]; simpl; intros x H; [exact H |].
  destruct H as (Lx & H). specialize (IH _ H). lra.
Qed.

Lemma rising_later : forall l x, rising x l -> forall a, In a l -> x <= snd a <= 1.
Proof.
  induction l as [| b l IH]; intros x H a Ha; [destruct Ha |]. destruct H as (H & H').
  destruct Ha as [<- | Ha]; [split; [exact H | apply (rising_below l _ H')] |].
  specialize (IH _ H' a Ha). lra.
Qed.

(* What is left of the place x has the mass m at x, and a mean that is d below x. *)
Lemma from_left : forall f, bent f -> forall l x m d slope,
  0 <= x -> rising x l -> 0 <= d ->
  (d = 0 \/ forall z, x <= z <= 1 -> f x + slope * (z - x) <= f z) ->
  m + sum fst l = 0 ->
  m * x - d + sum (fun a => fst a * snd a) l = 0 ->
  (forall k, In k (map snd l) ->
    0 <= d + m * (k - x) + sum (fun a => fst a * pos (k - snd a)) l) ->
  0 <= m * f x - d * slope + sum (fun a => fst a * f (snd a)) l.
Proof.
  intros f F. induction l as [| (w, y) l IH]; intros x m d slope X0 L D Sl M Mean H; simpl in *.
  - assert (m = 0) by lra. subst m. assert (d = 0) by lra. subst d. lra.
  - destruct L as (Lx & L).
    assert (Y1 : y <= 1) by apply (rising_below l y L).
    assert (Z : sum (fun a => fst a * pos (y - snd a)) l = 0).
    { rewrite (sum_ext _ (fun _ => 0)); [apply sum_zero |].
      intros a Ha. pose proof (rising_later l y L a Ha). rewrite pos_of_nonpos by lra. ring. }
    assert (D' : 0 <= d + m * (y - x)).
    { specialize (H y (or_introl eq_refl)). rewrite Z, (pos_of_nonneg (y - y)) in H by lra. lra. }
    assert (H' : forall k, In k (map snd l) -> 0 <= d + m * (y - x) + (m + w) * (k - y)
        + sum (fun a => fst a * pos (k - snd a)) l).
    { intros k Hk. specialize (H k (or_intror Hk)).
      assert (y <= k).
      { apply in_map_iff in Hk as (a & <- & Ha). apply (rising_later l y L a Ha). }
      rewrite (pos_of_nonneg (k - y)) in H by lra. lra. }
    destruct (Req_dec x y) as [<- | N].
    + specialize (IH x (m + w) (d + m * (x - x)) slope X0 L D'). 
      replace (d + m * (x - x)) with d in IH by ring.
      assert (0 <= (m + w) * f x - d * slope + sum (fun a => fst a * f (snd a)) l); [| lra].
      apply IH; auto; try lra.
      intros k Hk. specialize (H' k Hk). lra.
    + assert (P : 0 < y - x) by lra.
      set (steeper := (f y - f x) / (y - x)).
      assert (E : steeper * (y - x) = f y - f x) by (unfold steeper; field; lra).
      specialize (IH y (m + w) (d + m * (y - x)) steeper).
      assert (G : 0 <= (m + w) * f y - (d + m * (y - x)) * steeper
        + sum (fun a => fst a * f (snd a)) l).
      { apply IH; auto; try lra.
        right. intros z Hz. specialize (F x y z). 
        apply Rmult_le_reg_r with (y - x); [exact P |].
        replace ((f y + steeper * (z - y)) * (y - x))
          with (f y * (y - x) + steeper * (y - x) * (z - y)) by ring.
        rewrite E. assert ((z - x) * f y <= (z - y) * f x + (y - x) * f z) by (apply F; lra). lra. }
      assert (K : d * slope <= d * steeper).
      { destruct Sl as [-> | Sl]; [lra |]. apply Rmult_le_compat_l; [exact D |].
        apply Rmult_le_reg_r with (y - x); [exact P |]. rewrite E.
        assert (f x + slope * (y - x) <= f y) by (apply Sl; lra). lra. }
      assert (m * steeper * (y - x) = m * f y - m * f x) by
        (rewrite Rmult_assoc, E; ring).
      lra.
Qed.

(* The same for a list in any order. *)
Fixpoint insert (a : R * R) (l : list (R * R)) : list (R * R) :=
  match l with
  | [] => [a]
  | b :: rest => if Rle_dec (snd a) (snd b) then a :: l else b :: insert a rest
  end.

Lemma insert_permuted : forall a l, Permutation (a :: l) (insert a l).
Proof.
  intros a l. induction l as [| b l IH]; simpl; [reflexivity |].
  destruct (Rle_dec (snd a) (snd b)); [reflexivity |].
  eapply perm_trans; [apply perm_swap | apply perm_skip, IH].
Qed.

Lemma insert_rising : forall a l x, x <= snd a <= 1 -> rising x l -> rising x (insert a l).
Proof.
  intros a l. induction l as [| b l IH]; simpl; intros x Ha L; [lra |].
  destruct L as (Lx & L). destruct (Rle_dec (snd a) (snd b)); simpl; [tauto |].
  split; [exact Lx |]. apply IH; [lra | exact L].
Qed.

Lemma put_in_order : forall l, (forall a, In a l -> 0 <= snd a <= 1) ->
  exists l', Permutation l l' /\ rising 0 l'.
Proof.
  induction l as [| a l IH]; intros P; [exists []; simpl; split; [constructor | lra] |].
  destruct IH as (l' & E & L); [intros; apply P; simpl; auto |].
  exists (insert a l'). split.
  - eapply perm_trans; [apply perm_skip, E | apply insert_permuted].
  - apply insert_rising; [apply P; simpl; auto | exact L].
Qed.

Lemma from_kinks : forall f l, bent f -> (forall a, In a l -> 0 <= snd a <= 1) ->
  sum fst l = 0 -> sum (fun a => fst a * snd a) l = 0 ->
  (forall k, 0 <= k <= 1 -> 0 <= sum (fun a => fst a * pos (snd a - k)) l) ->
  0 <= sum (fun a => fst a * f (snd a)) l.
Proof.
  intros f l F P M Mean H.
  destruct (put_in_order l P) as (l' & E & L).
  assert (P' : forall a, In a l' -> 0 <= snd a <= 1) by (intros; apply (rising_later l' 0 L); auto).
  rewrite (sum_permuted _ l l' E) in M. rewrite (sum_permuted _ l l' E) in Mean.
  rewrite (sum_permuted _ l l' E).
  pose proof (from_left f F l' 0 0 0 0 (Rle_refl 0) L (Rle_refl 0) (or_introl eq_refl)) as G.
  rewrite !Rmult_0_l, Rplus_0_l in G. rewrite Rminus_0_r, !Rplus_0_l in G.
  apply G; auto.
  intros k Hk. apply in_map_iff in Hk as (b & <- & Hb). specialize (P' b Hb).
  specialize (H (snd b) P'). rewrite (sum_permuted _ l l' E) in H.
  rewrite Rmult_0_l, !Rplus_0_l.
  rewrite (sum_ext _ (fun a => fst a * pos (snd a - snd b) + (snd b * fst a - fst a * snd a))).
  - rewrite sum_plus, sum_minus, sum_scale, M, Mean. lra.
  - intros a _. destruct (Rle_dec (snd b) (snd a)).
    + rewrite (pos_of_nonpos (snd b - snd a)), (pos_of_nonneg (snd a - snd b)) by lra. ring.
    + rewrite (pos_of_nonneg (snd b - snd a)), (pos_of_nonpos (snd a - snd b)) by lra. ring.
Qed.

(* An output as its weight p + q and its place p / (p + q). *)
Definition place (o : R * R) : R := fst o / (fst o + snd o).
Definition placed (sign : R) (X : pair) : list (R * R) :=
  map (fun o => (sign * (fst o + snd o), place o)) X.

Lemma place_of : forall o, 0 <= fst o -> 0 <= snd o ->
  0 <= place o <= 1 /\ (fst o + snd o) * place o = fst o /\ (fst o + snd o) * (1 - place o) = snd o.
Proof.
  intros (p, q) P Q. unfold place. simpl in *.
  destruct (Req_dec (p + q) 0) as [Z | N].
  - assert (p = 0) by lra. assert (q = 0) by lra. subst. unfold Rdiv. rewrite Rmult_0_l. lra.
  - assert (T : 0 < p + q) by lra. split; [split |].
    + apply Rmult_le_pos; [lra |]. left. apply Rinv_0_lt_compat, T.
    + apply Rmult_le_reg_r with (p + q); [exact T |]. unfold Rdiv.
      rewrite Rmult_assoc, Rinv_l by lra. lra.
    + split; field; lra.
Qed.

Lemma placed_sum : forall sign f g X, is_pair X ->
  (forall p q, 0 <= p -> 0 <= q -> (p + q) * f (place (p, q)) = g p q) ->
  sum (fun a => fst a * f (snd a)) (placed sign X) = sign * divergence g X.
Proof.
  intros sign f g X P E. unfold placed, divergence. rewrite sum_map, <- sum_scale.
  apply sum_ext. intros (p, q) Ho. destruct (P _ Ho). simpl in *.
  rewrite Rmult_assoc, E by auto. reflexivity.
Qed.

Lemma divergence_ext : forall f g X, is_pair X ->
  (forall p q, 0 <= p -> 0 <= q -> f p q = g p q) -> divergence f X = divergence g X.
Proof.
  intros f g X P E. apply sum_ext. intros o Ho. destruct (P o Ho). apply E; auto.
Qed.

Theorem curves : forall X Y, is_pair X -> is_pair Y -> total X = total Y ->
  (forall epsilon, delta_at epsilon X <= delta_at epsilon Y) -> dominated X Y.
Proof.
  intros X Y PX PY T H phi S.
  set (l := placed (-1) X ++ placed 1 Y).
  assert (B : forall f g, (forall p q, 0 <= p -> 0 <= q -> (p + q) * f (place (p, q)) = g p q) ->
    sum (fun a => fst a * f (snd a)) l = divergence g Y - divergence g X).
  { intros f g E. unfold l. rewrite sum_app, !(placed_sum _ f g) by auto. lra. }
  assert (TP : divergence (fun p _ => p) X = divergence (fun p _ => p) Y).
  { injection T as T _. exact T. }
  assert (TQ : divergence (fun _ q => q) X = divergence (fun _ q => q) Y).
  { injection T as _ T. exact T. }
  assert (Pl : forall p q, 0 <= p -> 0 <= q -> 0 <= place (p, q) <= 1
    /\ (p + q) * place (p, q) = p /\ (p + q) * (1 - place (p, q)) = q)
    by (intros; apply (place_of (p, q)); auto).
  assert (G : 0 <= sum (fun a => fst a * phi (snd a) (1 - snd a)) l).
  { apply (from_kinks (fun s => phi s (1 - s))).
    - intros x y z X0 XY YZ Z1.
      rewrite <- !(homogeneous phi S) by lra.
      eapply Rle_trans; [| apply (subadditive phi S); apply Rmult_le_pos; lra].
      apply Req_le. f_equal; ring.
    - intros a Ha. unfold l, placed in Ha.
      apply in_app_or in Ha as [Ha | Ha]; apply in_map_iff in Ha as ((p, q) & <- & Ho); simpl;
        [destruct (PX _ Ho) | destruct (PY _ Ho)]; apply Pl; auto.
    - rewrite (sum_ext _ (fun a => fst a * 1)) by (intros; ring).
      rewrite (B (fun _ => 1) (fun p q => p + q)) by (intros; ring).
      assert (E : forall Z, divergence (fun p q => p + q) Z
        = divergence (fun p _ => p) Z + divergence (fun _ q => q) Z) by (intros; apply sum_plus).
      rewrite !E, TP, TQ. ring.
    - rewrite (B (fun s => s) (fun p _ => p)) by (intros; apply Pl; auto). lra.
    - intros k (K0 & K1).
      rewrite (B (fun s => pos (s - k)) (fun p q => pos ((1 - k) * p - k * q))).
      2:{ intros p q P Q. destruct (Pl p q P Q) as (_ & E & E').
          rewrite <- pos_scale by lra. f_equal. rewrite Rmult_minus_distr_l, E. ring. }
      destruct (Req_dec k 0) as [-> | N0]; [| destruct (Req_dec k 1) as [-> | N1]].
      + rewrite !(divergence_ext (fun p q => pos ((1 - 0) * p - 0 * q)) (fun p _ => p)); auto; [lra | |];
          intros p q P Q; rewrite pos_of_nonneg; lra.
      + rewrite !(divergence_ext (fun p q => pos ((1 - 1) * p - 1 * q)) (fun _ _ => 0)); auto;
          [unfold divergence; rewrite !sum_zero; lra | |];
          intros p q P Q; rewrite pos_of_nonpos; lra.
      + set (c := k / (1 - k)).
        assert (C : 0 < c) by (apply Rdiv_lt_0_compat; lra).
        assert (E : forall Z, divergence (fun p q => pos ((1 - k) * p - k * q)) Z
          = (1 - k) * delta_at (ln c) Z).
        { intros Z. unfold divergence, delta_at. rewrite <- sum_scale. apply sum_ext.
          intros o _. rewrite <- pos_scale, exp_ln by lra. f_equal. unfold c. field. lra. }
        rewrite !E. specialize (H (ln c)).
        assert ((1 - k) * delta_at (ln c) X <= (1 - k) * delta_at (ln c) Y); [| lra].
        apply Rmult_le_compat_l; lra. }
  rewrite (B (fun s => phi s (1 - s)) phi) in G; [lra |].
  intros p q P Q. destruct (Pl p q P Q) as (R & E & E').
  rewrite <- (homogeneous phi S), E, E' by lra. reflexivity.
Qed.
(* ---------------------------------------------------------------------------- buckets *)

(* measures.py, discretise: a bucket of the losses in [low, high] has the masses a and b; the share
   `right` of a goes to its right edge, the rest to its left edge. *)
Definition right_share (low high a b : R) : R := (a - b * exp low) / (1 - exp (low - high)).
Definition left_share (low high a b : R) : R := a - right_share low high a b.

Definition at_edges (low high a b : R) : pair :=
  [(left_share low high a b, left_share low high a b * exp (- low));
   (right_share low high a b, right_share low high a b * exp (- high))].

(* The output has a loss in [low, high]: p e^-high <= q <= p e^-low. *)
Definition in_bucket (low high : R) (o : R * R) : Prop :=
  0 <= fst o /\ fst o * exp (- high) <= snd o <= fst o * exp (- low).

Lemma edges : forall low high a b, low < high -> in_bucket low high (a, b) ->
  0 <= left_share low high a b /\ 0 <= right_share low high a b
  /\ left_share low high a b * exp (- low) + right_share low high a b * exp (- high) = b.
Proof.
  intros low high a b L (A & B & B'). simpl in *.
  assert (E1 : exp (- low) * exp low = 1).
  { rewrite <- exp_plus, Rplus_opp_l. apply exp_0. }
  assert (E2 : exp (low - high) = exp low * exp (- high)).
  { rewrite <- exp_plus. f_equal. }
  assert (E3 : exp (low - high) < 1).
  { rewrite <- exp_0. apply exp_increasing. lra. }
  pose proof (exp_pos low) as P. pose proof (exp_pos (- high)) as P'.
  assert (E4 : b * exp low <= a).
  { apply Rle_trans with (a * exp (- low) * exp low).
    - apply Rmult_le_compat_r; lra.
    - rewrite Rmult_assoc, E1. lra. }
  assert (E5 : a * exp (low - high) <= b * exp low).
  { rewrite E2. replace (a * (exp low * exp (- high))) with (a * exp (- high) * exp low) by ring.
    apply Rmult_le_compat_r; lra. }
  assert (N : 1 - exp (low - high) <> 0) by lra.
  assert (LS : left_share low high a b
    = (b * exp low - a * exp (low - high)) / (1 - exp (low - high))).
  { unfold left_share, right_share. field. exact N. }
  split; [| split].
  - rewrite LS. apply Rmult_le_pos; [lra |]. left. apply Rinv_0_lt_compat. lra.
  - unfold right_share. apply Rmult_le_pos; [lra |]. left. apply Rinv_0_lt_compat. lra.
  - rewrite LS. unfold right_share. rewrite E2 in *.
    set (l := exp low) in *. set (m := exp (- low)) in *. set (h := exp (- high)) in *.
    assert (M : (b * l - a * (l * h)) * m + (a - b * l) * h = b * (1 - l * h)).
    { replace ((b * l - a * (l * h)) * m) with (b * (m * l) - a * h * (m * l)) by ring.
      rewrite E1. ring. }
    unfold Rdiv. rewrite Rmult_assoc, (Rmult_comm (/ _) m), <- Rmult_assoc.
    rewrite (Rmult_assoc (a - b * l)), (Rmult_comm (/ _) h), <- (Rmult_assoc (a - b * l)).
    rewrite <- Rmult_plus_distr_r, M. field. exact N.
Qed.

Lemma shares_add : forall low high a b a' b',
  right_share low high (a + a') (b + b') = right_share low high a b + right_share low high a' b'
  /\ left_share low high (a + a') (b + b') = left_share low high a b + left_share low high a' b'.
Proof. intros. unfold left_share, right_share, Rdiv. split; ring. Qed.

(* On one ray from the origin phi is linear. *)
Lemma on_a_ray : forall phi c x y, sublinear phi -> 0 <= c -> 0 <= x -> 0 <= y ->
  phi (x + y) ((x + y) * c) = phi x (x * c) + phi y (y * c).
Proof.
  intros phi c x y H C X Y.
  assert (E : forall z, 0 <= z -> phi z (z * c) = z * phi 1 c).
  { intros z Z. pose proof (homogeneous phi H z 1 c Z) as E. rewrite Rmult_1_r in E.
    apply E; lra. }
  rewrite !E by lra. ring.
Qed.

Theorem bucket_spread : forall low high X, low < high ->
  (forall o, In o X -> in_bucket low high o) ->
  let a := fst (total X) in let b := snd (total X) in
  is_pair (at_edges low high a b)
  /\ total (at_edges low high a b) = (a, b)
  /\ dominated X (at_edges low high a b).
Proof.
  intros low high X L H a b.
  assert (T : in_bucket low high (a, b)).
  { subst a b. induction X as [| o X IH]; [unfold in_bucket; simpl; lra |].
    destruct (H o) as (A & B & B'); simpl; auto.
    destruct IH as (IA & IB & IB'); [intros; apply H; simpl; auto |].
    unfold in_bucket in *. simpl in *. lra. }
  destruct (edges low high a b L T) as (E & E' & E'').
  pose proof (exp_pos (- low)). pose proof (exp_pos (- high)).
  split; [| split].
  - intros o [<- | [<- | []]]; simpl; split; try assumption; apply Rmult_le_pos; lra.
  - unfold total, at_edges. simpl. f_equal.
    + unfold left_share. ring.
    + rewrite Rplus_0_r. exact E''.
  - clear T E E' E''. subst a b. intros phi S. induction X as [| o X IH].
    + unfold divergence, at_edges, left_share, right_share. simpl.
      replace ((0 - 0 * exp low) / (1 - exp (low - high))) with 0 by (unfold Rdiv; ring).
      rewrite Rminus_0_r, !Rmult_0_l, sublinear_zero by auto. lra.
    + assert (IX : forall o', In o' X -> in_bucket low high o') by (intros; apply H; simpl; auto).
      specialize (IH IX).
      assert (T : in_bucket low high (total X)).
      { clear IH H. induction X as [| u X IH]; [unfold in_bucket; simpl; lra |].
        destruct (IX u) as (A & B & B'); simpl; auto.
        destruct IH as (IA & IB & IB'); [intros; apply IX; simpl; auto |].
        unfold in_bucket in *. simpl in *. lra. }
      pose proof (H o (or_introl eq_refl)) as U. destruct o as (p, q).
      destruct (edges low high p q L U) as (E1 & E2 & E3).
      destruct (edges low high _ _ L T) as (F1 & F2 & F3).
      unfold divergence, at_edges in *. simpl in *.
      destruct (shares_add low high p q (sum fst X) (sum snd X)) as (-> & ->).
      rewrite !on_a_ray by (auto; lra).
      assert (phi p q <= phi (left_share low high p q) (left_share low high p q * exp (- low))
        + phi (right_share low high p q) (right_share low high p q * exp (- high))).
      { eapply Rle_trans; [| apply (subadditive phi S); auto; apply Rmult_le_pos; lra].
        rewrite E3. apply Req_le. f_equal. unfold left_share. ring. }
      lra.
Qed.

(* ------------------------------------------------------------------------------- laws *)

Definition law := list (R * R).  (* (weight, value) *)

Definition is_law (X : law) : Prop := forall a, In a X -> 0 <= fst a /\ 0 <= snd a.

Definition expectation (f : R -> R) (X : law) : R := sum (fun a => fst a * f (snd a)) X.

Definition convex (f : R -> R) : Prop := forall x y t, 0 <= x -> 0 <= y -> 0 <= t <= 1 ->
  f (t * x + (1 - t) * y) <= t * f x + (1 - t) * f y.

Definition smaller (X Y : law) : Prop :=
  forall f, convex f -> expectation f X <= expectation f Y.

(* Independent values: their weights multiply. *)
Definition joint (op : R -> R -> R) (X Y : law) : law :=
  flat_map (fun a => map (fun b => (fst a * fst b, op (snd a) (snd b))) Y) X.

Definition times (c : R) (X : law) : law := map (fun a => (fst a, c * snd a)) X.

Fixpoint sum_of (n : nat) (X : law) : law :=
  match n with O => [(1, 0)] | S m => joint Rplus X (sum_of m X) end.

Definition average (n : nat) (X : law) : law := times (/ INR n) (sum_of n X).

(* The pair of a law: a value r under x' with weight w has the probabilities w r and w. *)
Definition pair_of (X : law) : pair := map (fun a => (fst a * snd a, fst a)) X.

Theorem spread_law : forall w t x y X, 0 <= w -> 0 <= t <= 1 -> 0 <= x -> 0 <= y ->
  smaller ((w, t * x + (1 - t) * y) :: X) ((w * t, x) :: (w * (1 - t), y) :: X).
Proof.
  intros w t x y X W T Hx Hy f F. unfold expectation. simpl.
  specialize (F x y t Hx Hy T).
  assert (w * f (t * x + (1 - t) * y) <= w * (t * f x + (1 - t) * f y)) by
    (apply Rmult_le_compat_l; auto). lra.
Qed.

Definition weight (X : law) : R := sum fst X.
Definition mean_mass (X : law) : R := sum (fun a => fst a * snd a) X.

Lemma mass_nonneg : forall X, is_law X -> 0 <= weight X /\ 0 <= mean_mass X.
Proof.
  intros X P. split; apply sum_nonneg; intros a Ha; destruct (P a Ha); auto.
  apply Rmult_le_pos; auto.
Qed.

(* Jensen's inequality. *)
Lemma jensen : forall f X, convex f -> is_law X -> 0 < weight X ->
  weight X * f (mean_mass X / weight X) <= expectation f X.
Proof.
  intros f X F. induction X as [| (w, x) X IH]; intros P W.
  - unfold weight in W. simpl in W. lra.
  - unfold weight, mean_mass, expectation in *. simpl in *.
    assert (P' : is_law X) by (intros a Ha; apply P; simpl; auto).
    destruct (P (w, x)) as (Hw & Hx); [simpl; auto |]. simpl in Hw, Hx.
    destruct (mass_nonneg X P') as (HW & HM). unfold weight, mean_mass in HW, HM.
    destruct (Req_dec (sum fst X) 0) as [Z | N].
    + (* all other weights are 0, so that nothing is added *)
      assert (Zall : forall a, In a X -> fst a = 0).
      { clear -Z P'. induction X as [| b X IH]; simpl in *; [tauto |].
        assert (0 <= fst b) by (apply P'; simpl; auto).
        assert (0 <= sum fst X) by
          (apply sum_nonneg; intros c Hc; apply (P' c); simpl; auto).
        intros a [<- | Ha]; [lra |]. apply IH; auto; [| lra].
        intros c Hc. apply P'. simpl. auto. }
      rewrite (sum_ext (fun a => fst a * snd a) (fun _ => 0)), (sum_ext (fun a => fst a * f (snd a))
        (fun _ => 0)), !sum_zero, Z.
      * rewrite !Rplus_0_r in *. replace (w * x / w) with x by (field; lra). lra.
      * intros a Ha. rewrite (Zall a Ha). ring.
      * intros a Ha. rewrite (Zall a Ha). ring.
    + assert (HW' : 0 < sum fst X) by lra.
      specialize (IH P' HW').
      set (V := sum fst X) in *. set (m := sum (fun a => fst a * snd a) X) in *.
      assert (Hm : 0 <= m / V).
      { apply Rmult_le_pos; auto. left. apply Rinv_0_lt_compat. auto. }
      assert (T : 0 <= w / (w + V) <= 1).
      { split.
        - apply Rmult_le_pos; auto. left. apply Rinv_0_lt_compat. lra.
        - apply Rmult_le_reg_r with (w + V); [lra |].
          unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
      pose proof (F x (m / V) (w / (w + V)) Hx Hm T) as J.
      replace (w / (w + V) * x + (1 - w / (w + V)) * (m / V)) with ((w * x + m) / (w + V)) in J
        by (field; lra).
      apply Rle_trans with (w * f x + V * f (m / V)); [| lra].
      apply Rle_trans with ((w + V) * (w / (w + V) * f x + (1 - w / (w + V)) * f (m / V))).
      * apply Rmult_le_compat_l; [lra | exact J].
      * apply Req_le. field. lra.
Qed.

Theorem merge_law : forall X Y, is_law X -> 0 < weight X ->
  smaller ((weight X, mean_mass X / weight X) :: Y) (X ++ Y).
Proof.
  intros X Y P W f F. pose proof (jensen f X F P W) as J. unfold expectation in *. simpl.
  rewrite sum_app. lra.
Qed.

Lemma expectation_joint : forall f op X Y, expectation f (joint op X Y)
  = sum (fun a => fst a * expectation (fun y => f (op (snd a) y)) Y) X.
Proof.
  intros. unfold expectation, joint. rewrite sum_flat_map. apply sum_ext. intros a _.
  rewrite sum_map, <- sum_scale. apply sum_ext. intros b _. simpl. ring.
Qed.

Lemma expectation_joint_right : forall f op X Y, expectation f (joint op X Y)
  = sum (fun b => fst b * expectation (fun x => f (op x (snd b))) X) Y.
Proof.
  intros. rewrite expectation_joint. unfold expectation.
  rewrite (sum_ext _ (fun a => sum (fun b => fst a * (fst b * f (op (snd a) (snd b)))) Y)).
  - rewrite sum_swap. apply sum_ext. intros b _. rewrite <- sum_scale.
    apply sum_ext. intros a _. ring.
  - intros a _. rewrite sum_scale. reflexivity.
Qed.

Lemma joint_smaller : forall op X X' Y Y', is_law X -> is_law Y' ->
  (forall f c, convex f -> 0 <= c -> convex (fun y => f (op c y))) ->
  (forall f c, convex f -> 0 <= c -> convex (fun x => f (op x c))) ->
  smaller X X' -> smaller Y Y' -> smaller (joint op X Y) (joint op X' Y').
Proof.
  intros op X X' Y Y' P Q CL CR HX HY f F.
  apply Rle_trans with (expectation f (joint op X Y')).
  - rewrite !expectation_joint. apply sum_le. intros a Ha. destruct (P a Ha).
    apply Rmult_le_compat_l; [auto | apply HY, CL; auto].
  - rewrite !expectation_joint_right. apply sum_le. intros b Hb. destruct (Q b Hb).
    apply Rmult_le_compat_l; [auto | apply HX, CR; auto].
Qed.

Theorem sums_of_laws : forall X X' Y Y', is_law X -> is_law Y' ->
  smaller X X' -> smaller Y Y' -> smaller (joint Rplus X Y) (joint Rplus X' Y').
Proof.
  intros. apply joint_smaller; auto; intros f c F C x y t Hx Hy T.
  - replace (c + (t * x + (1 - t) * y)) with (t * (c + x) + (1 - t) * (c + y)) by ring.
    apply F; lra.
  - replace (t * x + (1 - t) * y + c) with (t * (x + c) + (1 - t) * (y + c)) by ring.
    apply F; lra.
Qed.

Lemma convex_times : forall f c, convex f -> 0 <= c -> convex (fun x => f (c * x)).
Proof.
  intros f c F C x y t Hx Hy T.
  replace (c * (t * x + (1 - t) * y)) with (t * (c * x) + (1 - t) * (c * y)) by ring.
  apply F; auto; apply Rmult_le_pos; auto.
Qed.

Theorem products_of_laws : forall X X' Y Y', is_law X -> is_law Y' ->
  smaller X X' -> smaller Y Y' -> smaller (joint Rmult X Y) (joint Rmult X' Y').
Proof.
  intros. apply joint_smaller; auto; intros f c F C.
  - apply convex_times; auto.
  - intros x y t Hx Hy T.
    replace ((t * x + (1 - t) * y) * c) with (t * (x * c) + (1 - t) * (y * c)) by ring.
    apply F; auto; apply Rmult_le_pos; auto.
Qed.

Theorem scaled_law : forall c X Y, 0 <= c -> smaller X Y -> smaller (times c X) (times c Y).
Proof.
  intros c X Y C H f F. unfold expectation, times. rewrite !sum_map. simpl.
  apply (H (fun x => f (c * x)) (convex_times f c F C)).
Qed.

Lemma sum_of_is_law : forall n X, is_law X -> is_law (sum_of n X).
Proof.
  induction n as [| n IH]; intros X P a H; simpl in H.
  - destruct H as [<- | []]. simpl. lra.
  - apply in_flat_map in H as (b & Hb & H). apply in_map_iff in H as (c & <- & Hc).
    destruct (P b Hb). destruct (IH X P c Hc). simpl.
    split; [apply Rmult_le_pos; auto | lra].
Qed.

Theorem averages : forall n X Y, (0 < n)%nat -> is_law X -> is_law Y ->
  smaller X Y -> smaller (average n X) (average n Y).
Proof.
  intros n X Y N P Q H. apply scaled_law.
  - left. apply Rinv_0_lt_compat. apply lt_0_INR. exact N.
  - clear N. induction n as [| n IH]; simpl.
    + intros f _. lra.
    + apply sums_of_laws; auto using sum_of_is_law.
Qed.

Theorem law_of_pair : forall X Y, is_law X -> is_law Y ->
  smaller X Y -> dominated (pair_of X) (pair_of Y).
Proof.
  intros X Y P Q H phi S.
  assert (E : forall Z, is_law Z -> divergence phi (pair_of Z) = expectation (fun r => phi r 1) Z).
  { intros Z HZ. unfold divergence, pair_of, expectation. rewrite sum_map. apply sum_ext.
    intros (w, r) Ha. destruct (HZ _ Ha) as (W & V). simpl in *.
    rewrite <- (homogeneous phi S) by lra. f_equal. ring. }
  rewrite !E by auto. apply H.
  intros x y t Hx Hy (T & T').
  rewrite <- !(homogeneous phi S) by lra.
  eapply Rle_trans; [| apply (subadditive phi S); apply Rmult_le_pos; lra].
  apply Req_le. f_equal. ring.
Qed.

(* Each value r is replaced by a smaller one r', and the mean that is lost becomes probability under
   x at infinite loss. *)
Theorem cut_law : forall X : list (R * (R * R)),
  (forall w r r', In (w, (r, r')) X -> 0 <= w /\ 0 <= r' <= r) ->
  dominated (pair_of (map (fun a => (fst a, fst (snd a))) X))
    ((sum (fun a => fst a * (fst (snd a) - snd (snd a))) X, 0)
     :: pair_of (map (fun a => (fst a, snd (snd a))) X)).
Proof.
  intros X P phi S. unfold divergence, pair_of. rewrite !map_map. simpl. rewrite !sum_map. simpl.
  induction X as [| (w, (r, r')) X IH]; simpl.
  - rewrite sublinear_zero by auto. lra.
  - destruct (P w r r') as (W & R' & R''); [simpl; auto |].
    assert (P' : forall w r r', In (w, (r, r')) X -> 0 <= w /\ 0 <= r' <= r)
      by (intros; apply P; simpl; auto).
    specialize (IH P').
    set (lost := sum (fun a => fst a * (fst (snd a) - snd (snd a))) X) in *.
    assert (L : 0 <= lost).
    { apply sum_nonneg. intros (v, (s, s')) Ha. destruct (P' v s s' Ha). simpl.
      apply Rmult_le_pos; lra. }
    assert (D : 0 <= w * (r - r')) by (apply Rmult_le_pos; lra).
    pose proof (on_a_ray phi 0 (w * (r - r')) lost S) as E. rewrite !Rmult_0_r in E.
    rewrite E by lra.
    assert (phi (w * r) w <= phi (w * (r - r')) 0 + phi (w * r') w).
    { eapply Rle_trans; [| apply (subadditive phi S); try apply Rmult_le_pos; lra].
      apply Req_le. f_equal; ring. }
    lra.
Qed.

Print Assumptions deltas.
Print Assumptions curves.
Print Assumptions merging.
Print Assumptions at_infinity.
Print Assumptions products.
Print Assumptions adaptive.
Print Assumptions repeated.
Print Assumptions mixtures.
Print Assumptions bucket_spread.
Print Assumptions spread_law.
Print Assumptions merge_law.
Print Assumptions sums_of_laws.
Print Assumptions products_of_laws.
Print Assumptions scaled_law.
Print Assumptions averages.
Print Assumptions law_of_pair.
Print Assumptions cut_law.
