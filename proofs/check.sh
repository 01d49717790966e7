#!/bin/sh
# Checks every proof of this folder with Coq's standard library alone. It writes nothing here.
#
#   proofs/check.sh          checks all, and says which theorems rest on which axioms
#
# It fails if a proof does not hold, if one is left out (Admitted, Axiom, Parameter), if a file
# ends without `Print Assumptions`, or if a theorem rests on an axiom that the reals library of Coq
# does not bring along.
set -eu

# in the order in which they build on each other
FILES="sums filter guarantees account conversations order selection stopping plans choices beside"

# the axioms of Coq's classical real numbers (Coq.Reals), which all of them share
ALLOWED="ClassicalDedekindReals.sig_not_dec
ClassicalDedekindReals.sig_forall_dec
FunctionalExtensionality.functional_extensionality_dep
Classical_Prop.classic"

if ! command -v coqc > /dev/null; then
    echo "proofs: coqc is missing (Debian: apt-get install coq)" >&2
    exit 1
fi
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

listed=$(printf '%s.v\n' $FILES | sort)
there=$(cd "$here" && ls ./*.v | sed 's|^\./||' | sort)
if [ "$listed" != "$there" ]; then
    echo "proofs: the files of this folder and the list in check.sh differ" >&2
    exit 1
fi
cp "$here"/*.v "$work"
cd "$work"

# words of the language that leave a proof out; comments may not use them either
if grep -nwE 'Admitted|admit|Axiom|Axioms|Parameter|Parameters|Conjecture|Hypothesis|Hypotheses|bypass_check|Unset Guard Checking|Unset Positivity Checking|Unset Universe Checking' ./*.v; then
    echo "proofs: the lines above leave a proof out" >&2
    exit 1
fi

for file in $FILES; do
    coqc -q -R . Tightbudget "$file.v" > "$file.out"
    asked=$(grep -c '^Print Assumptions' "$file.v" || true)
    if [ "$asked" = 0 ] && [ "$file" != sums ]; then
        echo "proofs: $file.v must end with Print Assumptions of its theorems" >&2
        exit 1
    fi
    for theorem in $(sed -n 's/^Theorem \([A-Za-z0-9_]*\).*/\1/p' "$file.v"); do
        if ! grep -q "^Print Assumptions $theorem\.$" "$file.v"; then
            echo "proofs: $file.v must print the assumptions of $theorem" >&2
            exit 1
        fi
    done
    # an axiom is printed at the start of a line, its type after a colon here or on the next line
    used=$(sed -n 's/^\([A-Za-z_][A-Za-z0-9_.'"'"']*\)\( :.*\)\{0,1\}$/\1/p' "$file.out" | sort -u)
    for axiom in $used; do
        if ! printf '%s\n' "$ALLOWED" | grep -qxF "$axiom"; then
            echo "proofs: $file.v rests on $axiom" >&2
            exit 1
        fi
    done
    echo "$file.v: $asked theorems; axioms:" ${used:-none}
done
