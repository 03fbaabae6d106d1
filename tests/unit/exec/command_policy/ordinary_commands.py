"""Everyday commands, which the command policy should seldom ask about."""

from __future__ import annotations

ORDINARY = r"""
ls
ls -la
ls -la src tests
ls -lh dist/ | sort -k5 -h
pwd
tree -L 2 -I node_modules
find . -name "*.py" -not -path "./.venv/*" | head -50
find src -type f -name '*.ts' | wc -l
find . -maxdepth 2 -type d
find . -name "*.pyc" -delete
find . -type d -name __pycache__ -exec rm -rf {} +
find . -name '*.orig' -print0 | xargs -0 ls -l
find tests -name 'test_*.py' -newer setup.py
find . -size +1M -not -path './.git/*'
cat README.md
cat package.json | jq .scripts
cat src/main.rs src/lib.rs
head -100 src/app.py
tail -n 50 logs/server.log
tail -f logs/server.log | head -20
sed -n '100,150p' src/app.py
sed -n '/def main/,/^def /p' cli.py
wc -l src/**/*.py
wc -c bundle.js
grep -rn "TODO" src
grep -rn --include='*.py' 'import requests' .
grep -E '^(def|class) ' src/models.py
grep -c error server.log
grep -rlZ foo src | xargs -0 grep -l bar
rg -n "fn main" --type rust
rg 'useEffect\(' -g '*.tsx' -A 3
rg --files | rg test
rg -l deprecated | sort | uniq
git status
git status --short --branch
git diff
git diff --stat HEAD~3
git diff --cached src/app.py
git log --oneline -10
git log --format='%h %an %s' --since=2.weeks
git log -p -S 'parse_config' -- src/config.py
git show HEAD
git show HEAD:src/app.py | head -40
git blame -L 10,20 src/app.py
git branch -a
git branch --show-current
git branch feature/login
git checkout -b fix/typo
git checkout main
git checkout -- src/app.py
git switch -c feature/x
git restore --staged .
git add -A
git add src/app.py tests/test_app.py
git commit -m "Fix off-by-one in pager"
git commit -am 'wip'
git commit --amend --no-edit
git stash
git stash pop
git stash list
git fetch origin
git pull --rebase
git merge main
git rebase main
git rebase --continue
git cherry-pick abc1234
git reset --soft HEAD~1
git reset --hard HEAD
git tag v1.2.0
git rev-parse --short HEAD
git ls-files | wc -l
git ls-files '*.md'
git grep -n 'class Config'
git worktree list
git clone https://github.com/psf/requests.git
git clone --depth 1 https://github.com/org/repo vendor/repo
git submodule update --init --recursive
git config user.name "Dev"
git config --get remote.origin.url
git remote -v
git -C sub status
git --no-pager log -3
git describe --tags --always
git shortlog -sn | head
git bisect start
git bisect good v1.0
git apply fix.patch
git format-patch -1 HEAD
git mv old.py new.py
git rm --cached secrets.example
git diff main...HEAD --name-only
git log --graph --oneline --all | head -30
git show --stat HEAD~1
git check-ignore -v build/
python --version
python3 -V
python main.py
python3 scripts/gen.py --out build/data.json
python -m pytest
python -m pytest tests/unit -q
python -m pytest -k "parser and not slow" -x
python3 -m venv .venv
python -m pip install -r requirements.txt
python -m json.tool data.json
python -m http.server 8000
python -m mypy src
python -m build
python -m compileall -q src
python -c "import sys; print(sys.version)"
python -c "import numpy; print(numpy.__version__)"
python3 -c 'import mypkg'
python -c "print(2**64)"
python manage.py migrate
python manage.py test app.tests
python -W error -m unittest discover -s tests
PYTHONPATH=src python -m mypkg.cli --help
PYTHONPATH=. pytest tests/
. .venv/bin/activate && pytest
source .venv/bin/activate
source venv/bin/activate && pip install -e '.[dev]'
.venv/bin/python -m pytest -q
.venv/bin/pytest tests/test_api.py::test_login -vv
./.venv/bin/ruff check src
pytest
pytest -q
pytest -x --lf
pytest tests/test_cli.py -k help -s
pytest --cov=src --cov-report=term-missing
pytest -n 4 --dist loadfile
pytest 2>&1 | tail -30
pytest -q > /tmp/out.txt 2>&1; tail -5 /tmp/out.txt
tox -e py311
nox -s lint
coverage run -m pytest
coverage report -m
coverage html -d build/htmlcov
ruff check .
ruff check --fix src tests
ruff format --check .
black --check .
black src
isort --profile black .
flake8 src --max-line-length 100
mypy src
mypy --strict src/hermes
pyright
pylint src/pkg
pre-commit run --all-files
pip install requests
pip install -e .
pip install 'django>=4,<5' pytest
pip install --upgrade pip
pip list --outdated
pip show flask
pip freeze > requirements.txt
pip uninstall -y oldpkg
uv sync
uv run pytest -q
uv run --extra dev mypy src
uv pip install -r requirements.txt
uv add httpx
uv lock --upgrade
uv venv
poetry install
poetry run pytest
poetry add --group dev black
poetry lock --no-update
pipenv install --dev
pipenv run python app.py
conda env list
conda run -n ml python train.py
hatch run test
pip-compile requirements.in
alembic upgrade head
alembic revision --autogenerate -m "add users"
flask run --port 5001
uvicorn app:app --reload --port 8000
gunicorn -w 2 app:app
jupyter nbconvert --to script analysis.ipynb
sphinx-build -b html docs docs/_build
mkdocs build --strict
node --version
node index.js
node --test
node scripts/build.mjs --watch
npm install
npm ci
npm i -D typescript @types/node
npm test
npm test -- --watch=false
npm run build
npm run lint -- --fix
npm run dev &
npm ls --depth=0
npm outdated
npm view react version
npm audit
npm uninstall lodash
npm init -y
npm pack --dry-run
npm version patch --no-git-tag-version
npm run test:unit 2>&1 | grep -A5 FAIL
npx tsc --noEmit
npx eslint src --ext .ts,.tsx
npx prettier --write "src/**/*.ts"
npx jest --coverage
npx vitest run
npx playwright test
npx create-vite my-app --template react-ts
pnpm install --frozen-lockfile
pnpm -v
pnpm test
pnpm run build
pnpm add zod
yarn
yarn install --frozen-lockfile
yarn test
yarn build
yarn add -D jest
yarn workspace web build
bun install
bun test
bun run dev
deno test --allow-read
deno fmt --check
tsc -p tsconfig.json
eslint . --max-warnings 0
prettier --check .
jest --runInBand
vitest run --reporter=dot
vite build
webpack --mode production
next build
NODE_ENV=production npm run build
NODE_OPTIONS=--max-old-space-size=4096 npm run build
CI=1 npm test
cargo build
cargo build --release
cargo check
cargo test
cargo test parser:: -- --nocapture
cargo clippy -- -D warnings
cargo fmt --all -- --check
cargo run -- --input data.txt
cargo run --example demo
cargo add serde --features derive
cargo update -p tokio
cargo doc --no-deps
cargo bench
cargo tree -d
cargo clean
cargo nextest run
RUST_BACKTRACE=1 cargo test
RUSTFLAGS="-D warnings" cargo build
rustc --version
rustup show
rustfmt src/main.rs
go version
go build ./...
go test ./...
go test -run TestParse -v ./internal/parser
go test -race -count=1 ./...
go vet ./...
go mod tidy
go mod download
go get golang.org/x/sync@latest
go run ./cmd/server
go run main.go --port 8080
go generate ./...
go fmt ./...
go list -m all
go env GOPATH
gofmt -l .
golangci-lint run
CGO_ENABLED=0 GOOS=linux go build -o bin/app ./cmd/app
make
make -j4
make test
make clean && make
make -C docs html
make build VERSION=1.2.3
make install DESTDIR=build/root
make -n deploy
cmake -S . -B build
cmake --build build -j
cmake -B build -DCMAKE_BUILD_TYPE=Debug && cmake --build build
ctest --test-dir build --output-on-failure
mkdir -p build && cd build && cmake .. && make
gcc -O2 -Wall -o hello hello.c
gcc -g main.c util.c -o app -lm && ./app
g++ -std=c++20 -o a.out main.cpp
clang -fsanitize=address -g test.c -o test && ./test
clang-format -i src/*.cpp
clang-tidy src/main.cpp -- -Iinclude
valgrind --leak-check=full ./app
CC=clang make
ninja -C build
meson setup build && meson compile -C build
bazel build //...
bazel test //pkg:all
./configure --prefix=$PWD/out
./gradlew build
./gradlew test --info
./mvnw -q test
mvn clean package
mvn test -Dtest=UserServiceTest
mvn dependency:tree
gradle build -x test
java -version
java -jar target/app.jar
javac -d out src/Main.java
sbt test
bundle install
bundle exec rspec
bundle exec rake db:migrate
bundle exec rubocop -a
rails db:migrate
rspec spec/models
ruby -v
ruby script.rb
gem list
composer install
composer require monolog/monolog
vendor/bin/phpunit
php -v
php artisan migrate
php -l src/index.php
dotnet build
dotnet test
dotnet run --project src/App
swift build
swift test
mix deps.get
mix test
cabal build
stack test
dart pub get
flutter test
zig build test
julia --project=. test/runtests.jl
Rscript analysis.R
lua test.lua
perl script.pl input.txt
prove -l t
mkdir -p src/components
mkdir tmp
touch src/__init__.py
cp config.example.yml config.yml
cp -r templates/ build/templates
mv src/old.py src/new.py
mv *.log logs/
rm file.txt
rm -f *.tmp
rm -rf build dist
rm -rf node_modules && npm install
rm -rf ./target/debug
rm -r tests/__snapshots__
rm -rf .pytest_cache .mypy_cache .ruff_cache
ln -s ../shared/config.json config.json
ln -sf dist/latest current
chmod +x scripts/run.sh
chmod 644 README.md
chmod -R u+w vendor/
truncate -s 0 app.log
touch a b c && ls
mktemp -d
tar czf release.tar.gz dist/
tar xzf archive.tar.gz
tar -xf data.tar -C data/
tar tf archive.tar
zip -r out.zip dist
unzip -o fixtures.zip -d tests/fixtures
unzip -l lib.jar | head
gzip -k big.json
gunzip data.csv.gz
xz -d file.xz
echo hello
echo "done" >> notes.txt
echo "VERSION=1.0" > version.env
echo $PATH
echo "$HOME"
echo $?
printf '%s\n' a b c | sort
printf 'a\tb\n' > t.tsv
cat > src/hello.py <<'EOF'
date
date +%Y-%m-%d
date -u +%FT%TZ
whoami
hostname
uname -a
id
env | sort
env | grep -i proxy
printenv HOME
which python node go
command -v rg
type -a python
file build/app
stat -c '%s %n' *.bin
du -sh * | sort -h
du -sh node_modules
df -h .
free -m
ps aux | grep node
ps -ef | head
top -b -n1 | head -20
lsof -i :3000
ss -ltnp
uptime
nproc
sleep 2
sleep 1 && curl -s localhost:8000/health
time make test
time ./bench
timeout 60 pytest -q
timeout 10s node server.js
nohup python server.py > server.log 2>&1 &
kill %1
kill 12345
kill -TERM 4242
pkill -f "vite"
pkill -f 'python server.py'
kill $(cat server.pid)
kill -9 $(lsof -t -i:3000)
sed -i 's/foo/bar/g' src/app.py
sed -i.bak -e 's/1.0/1.1/' setup.cfg
sed -i '/^#/d' config.ini
sed -i '5i import os' main.py
sed -E 's/([0-9]+)/<\1>/' in.txt > out.txt
sed 's|http://|https://|' urls.txt
sed -e '1d' -e '$d' data.csv
sed -n '$p' log.txt
grep -rl oldname src | xargs sed -i 's/oldname/newname/g'
awk '{print $1}' access.log | sort | uniq -c | sort -rn | head
awk -F, 'NR>1 {s+=$3} END {print s}' sales.csv
awk '/error/ {c++} END {print c+0}' log.txt
awk 'length > 100' src/*.py
cut -d, -f1,3 data.csv
sort -u names.txt
sort -t, -k2 -n data.csv | head
uniq -c sorted.txt
tr 'a-z' 'A-Z' < in.txt
tr -d '\r' < dos.txt > unix.txt
diff a.txt b.txt
diff -ru old/ new/ > changes.patch
diff <(sort a.txt) <(sort b.txt)
cmp a.bin b.bin
comm -12 <(sort a) <(sort b)
patch -p1 < fix.patch
xxd file.bin | head
hexdump -C file.bin | head -5
md5sum dist/*
sha256sum release.tar.gz
base64 image.png | head -c 100
base64 -d enc.txt > dec.bin
jq '.dependencies | keys' package.json
jq -r '.[] | .name' data.json
jq . config.json > config.pretty.json && mv config.pretty.json config.json
yq '.services' docker-compose.yml
curl -s http://localhost:3000/api/health
curl -i http://127.0.0.1:8080/
curl -X POST http://localhost:8000/items -H 'Content-Type: application/json' -d '{"name":"x"}'
curl -sSL https://api.github.com/repos/psf/requests | jq .stargazers_count
curl -I https://example.com
curl -O https://example.com/data.csv
curl -fsSL https://example.com/schema.json -o schema.json
wget -q https://example.com/dataset.zip
wget -O data.json https://example.com/data.json
sqlite3 app.db '.tables'
sqlite3 app.db 'select count(*) from users'
sqlite3 -header -csv app.db "select * from t limit 5" > t.csv
for f in *.md; do echo "$f"; done
for f in src/*.py; do wc -l "$f"; done
for i in 1 2 3; do echo "run $i"; pytest -q; done
for i in $(seq 1 5); do curl -s localhost:8000/health; sleep 1; done
for d in */; do (cd "$d" && git status -s); done
for f in *.txt; do mv "$f" "${f%.txt}.md"; done
while read -r line; do echo "$line"; done < names.txt
while IFS=, read -r a b; do echo "$a -> $b"; done < pairs.csv
if [ -f package.json ]; then npm test; else echo none; fi
if [[ -d build ]]; then rm -rf build; fi
[ -f .env.example ] && cp .env.example .env.local
test -d dist || mkdir dist
[ -d node_modules ] || npm ci
cd frontend && npm run build
cd src && grep -rn foo . && cd ..
cd backend && python -m pytest -q && cd .. && ls
(cd docs && make html)
pushd web && yarn build && popd
export NODE_ENV=test && npm test
export PATH="$PWD/node_modules/.bin:$PATH" && tsc -v
PATH=$PATH:$HOME/.local/bin pytest --version
set -e; make lint; make test
set -euo pipefail; ./scripts/check.sh
bash scripts/setup.sh
bash -n scripts/deploy.sh
bash -c 'echo $BASH_VERSION'
sh ./run.sh --fast
./scripts/test.sh unit
./run_tests.sh 2>&1 | tee test.log
./a.out < input.txt > output.txt
bin/rails test
node_modules/.bin/eslint src
shellcheck scripts/*.sh
shfmt -d scripts
hadolint Dockerfile
yamllint .github/workflows
markdownlint '**/*.md'
terraform fmt -check
terraform validate
docker ps
gh pr view 42
gh pr diff 42
gh issue list --state open
gh run view --log-failed
ls *.py | xargs -n1 basename
ls | xargs -I{} echo {}
cat urls.txt | xargs -P4 -n1 curl -sO
git ls-files | xargs wc -l | tail -1
git diff --name-only | xargs ruff check
rg -l foo | xargs -r sed -n 1p
seq 10 | paste -sd+ | bc
expr 3 + 4
echo $((1024*1024))
column -t -s, data.csv | less
nl -ba src/app.py | sed -n '40,60p'
cat -A Makefile | head
head -c 200 /dev/urandom | base64
ls /usr/lib/python3
cat /etc/os-release
cat /proc/cpuinfo | grep 'model name' | head -1
ls -la /tmp
cat /tmp/out.txt
cp build/app /tmp/app-test && /tmp/app-test --version
ffmpeg -i in.mp4 -vf scale=640:-1 out.mp4
convert logo.png -resize 50% logo-small.png
pandoc README.md -o README.pdf
dot -Tsvg graph.dot -o graph.svg
latexmk -pdf paper.tex
protoc --python_out=gen proto/api.proto
openssl version
ctags -R src
cloc src
tokei
hyperfine './app a' './app b'
py-spy --version
just test
task build
direnv --version
git log --oneline | wc -l && git diff --stat
git stash && git checkout main && git pull && git stash pop
git add . && git commit -m "feat: add login (closes #12)"
git commit -m "$(printf 'Subject\n\nBody with details')"
npm run build && ls -lh dist && du -sh dist
pytest -q || true
pytest -q && echo OK || echo FAIL
make lint; make test; echo "exit: $?"
grep -n 'version' pyproject.toml setup.py package.json 2>/dev/null
ls nonexistent 2>/dev/null || echo "not there"
find . -name package.json -not -path '*/node_modules/*' -exec grep -l react {} \;
find . -name '*.sh' -exec chmod +x {} +
find src -name '*.js' -exec sed -i 's/var /let /g' {} +
python - < script.py
python script.py | tee out.log
python -u train.py --epochs 3 2>&1 | tee logs/train.log
cat a.json | python -m json.tool
node -v && npm -v
node -p "process.version"
npx --yes cowsay hi
tail -100 app.log | grep -i error | cut -c1-200
echo "a,b" | tr ',' '\n'
VAR=$(git rev-parse HEAD) && echo "$VAR"
VERSION=$(cat VERSION); echo "building $VERSION"; docker --version
OUT=build/report.txt; pytest -q > "$OUT"; cat "$OUT"
name=demo; mkdir -p "examples/$name" && touch "examples/$name/main.py"
diff -u <(git show HEAD:a.py) a.py
test "$(uname)" = Darwin && echo mac || echo other
type python3 >/dev/null 2>&1 && echo yes
ls -1 | while read f; do echo "$f"; done
cat <<< "hello" | wc -c
git log -1 --format=%cd > build/date.txt
""".strip().splitlines()  # fmt: skip
ORDINARY[ORDINARY.index("cat > src/hello.py <<'EOF'")] += "\ndef main():\n    print('hi')\n\nEOF"
"""Everyday work of an agent in a project; in a sandbox almost none of it may ask."""

ORDINARY += [
    block.strip("\n")
    for block in r"""
python3 - <<'EOF'
import json, pathlib
data = json.loads(pathlib.Path("package.json").read_text())
print(sorted(data["dependencies"]))
EOF
---
cat > tests/test_login.py <<'EOF'
from app import login

def test_login(client):
    assert login(client, "ann", "rm -rf /")
EOF
pytest -q tests/test_login.py
---
cat >> .gitignore <<EOF
build/
*.log
EOF
git add .gitignore
---
git commit -F - <<'EOF'
Fix the pager

It skipped the last page; see git push --force in the notes.
EOF
---
node <<'EOF'
const fs = require("fs");
console.log(Object.keys(JSON.parse(fs.readFileSync("tsconfig.json"))));
EOF
---
for dir in services/*/; do
  echo "== $dir"
  (cd "$dir" && go test ./... 2>&1 | tail -3)
done
---
set -e
python -m venv .venv-test
. .venv-test/bin/activate
python -m pytest -q
deactivate
rm -rf .venv-test
---
npm run dev > dev.log 2>&1 &
PID=$!
sleep 3
curl -s http://localhost:5173/ | head -5
kill $PID
---
sqlite3 dev.db <<'SQL'
CREATE TABLE t (a TEXT);
DROP TABLE IF EXISTS old;
SELECT count(*) FROM t;
SQL
---
if ! ruff check .; then
  ruff check --fix .
  git diff --stat
fi
---
while ! curl -sf localhost:8000/health; do sleep 0.2; done; echo up
---
case "$(uname -s)" in Linux) make linux ;; *) make other ;; esac
---
find . -name '*.test.ts' -not -path './node_modules/*' | while read -r f; do
  grep -L 'describe(' "$f"
done
---
git log --since="1 week ago" --pretty=format:'%h|%an|%s' | awk -F'|' '{print $2}' | sort | uniq -c
---
python -c "
import ast, sys
for path in sys.argv[1:]:
    ast.parse(open(path).read())
" src/*.py
---
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT && tar xzf dist/app.tar.gz -C "$tmp" && ls "$tmp"
---
function count() { wc -l < "$1"; }; for f in *.py; do count "$f"; done
---
diff <(jq -S . a.json) <(jq -S . b.json) && echo same
---
perl -pi -e 's/\bfoo\b/bar/g' src/*.c
---
git diff HEAD --name-only --diff-filter=AM | grep '\.py$' | xargs -r black --check
---
git worktree add ../feature feature || git worktree add wt/feature feature
---
docker compose -f docker-compose.yml config
---
psql -h localhost -U dev -c 'select 1'
---
redis-cli -p 6379 ping
---
openssl rand -hex 16 > .secret.example
---
ssh-keygen -lf deploy_key.pub
---
xargs -a files.txt -I{} cp {} backup/
---
{ echo "# Changes"; git log --oneline -20; } > CHANGES.md
---
ls -t logs/*.log | tail -n +6 | xargs -r rm --
---
rsync -a --delete src/ build/src/
---
sed -i "s/^version = .*/version = \"$(cat VERSION)\"/" pyproject.toml
---
env -u DATABASE_URL python manage.py check
---
timeout 120 bash -c 'until nc -z localhost 5432; do sleep 1; done'
---
PGPASSWORD=dev createdb -h localhost app_test
---
exec 3>&1; make 2>&1 >&3 | tee err.log
---
test -z "$(gofmt -l .)" || { gofmt -d .; exit 1; }
---
printf '%s\n' "${PATH//:/$'\n'}"
---
shopt -s globstar; wc -l **/*.ts | tail -1
---
read -r major minor _ <<< "$(python3 -c 'import sys; print(*sys.version_info[:2])')"; echo $major
""".split("---\n")
]
LEAVING = r"""
git fetch origin
git pull --rebase
git clone https://github.com/psf/requests.git
git clone --depth 1 https://github.com/org/repo vendor/repo
git stash && git checkout main && git pull && git stash pop
git push
git push -u origin feature/login
git add -A && git commit -m x && git push
python -m pip install -r requirements.txt
source venv/bin/activate && pip install -e '.[dev]'
pip install requests
pip install -e .
pip install 'django>=4,<5' pytest
pip install --upgrade pip
uv sync
uv add httpx
uv lock --upgrade
poetry install
poetry add --group dev black
poetry lock --no-update
pipenv install --dev
npm install
npm ci
npm i -D typescript @types/node
npm publish
pnpm install --frozen-lockfile
pnpm add zod
yarn install --frozen-lockfile
yarn add -D jest
bun install
cargo add serde --features derive
cargo update -p tokio
cargo publish
go get golang.org/x/sync@latest
bundle install
composer install
composer require monolog/monolog
rm -rf node_modules && npm install
[ -d node_modules ] || npm ci
docker build -t app .
curl -sSL https://api.github.com/repos/psf/requests | jq .stargazers_count
curl -I https://example.com
curl -O https://example.com/data.csv
curl -fsSL https://example.com/schema.json -o schema.json
wget -q https://example.com/dataset.zip
wget -O data.json https://example.com/data.json
""".strip().splitlines()  # fmt: skip
"""Ordinary, too, but they cannot work inside the walls: each asks for what it needs."""
