# Makes the repository that every shape begins with. The shape's own layout goes into the first commit, and
# each further commit changes its tracked files, so that git has to write them at every checkout.
tick=0
dated() {
    tick=$((tick + 1))
    GIT_AUTHOR_DATE="$((1600000000 + 60 * tick)) +0000" GIT_COMMITTER_DATE="$((1600000000 + 60 * tick)) +0000" "$@"
}
commit() { git add -A && dated git commit -qm "$1"; }
fill() {
    case $1 in */*) [ -d "${1%/*}" ] || mkdir -p "${1%/*}" ;; esac
    printf 'first of %s\nb\nc\nd\ne\nf\ng\nlast\n' "$1" > "$1"
}
append() { echo "$1" >> "$2"; }
head_line() { sed -i "1s/\$/ $1/" "$2"; }

# Samples of hooks are many files, and the same in every repository.
mkdir -p "$HOME/template/hooks" "$HOME/template/info"
git config --global init.templateDir "$HOME/template"
cd "$C"
git init -q --bare lib.git
git clone -q lib.git lib-work 2>/dev/null
cd lib-work
fill lib.txt
commit lib
git push -q origin HEAD:main
cd "$C"
rm -rf lib-work

cd "$R"
git init -q ${FORMAT:-} .
for f in README.md src/lib.txt src/old.txt doc/guide.md; do fill "$f"; done
tracked fill
layout
cd "$R"
commit first
append second src/lib.txt
tracked append second
commit second
dated git tag -a v1 -m one
git checkout -qb topic
tracked append topic
append topic src/topic.txt
commit topic
git checkout -qb clash main
head_line clash README.md
commit clash
git checkout -q main
head_line third README.md
tracked head_line third
commit third

git clone -q --bare . "$C/origin.git"
git -C "$C/origin.git" config receive.denyDeleteCurrent ignore
git remote add origin "$C/origin.git"
git fetch -q
git clone -q "$C/origin.git" "$C/colleague"
cd "$C/colleague"
git checkout -qb feature
tracked append feature
append feature src/feature.txt
commit feature
git push -q origin feature
git checkout -q main
append news src/news.txt
commit news
git push -q origin main
cd "$R"
rm -rf "$C/colleague"
git fetch -q origin feature:refs/remotes/origin/feature
git config --global --unset init.templateDir
state
