"""What a user names is a commit, or one sentence says why not."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_project import Install, Project, run_git

from attnbench.live.repository import GitFailed, commit_of, commits_lacking, git, repository_of
from attnbench.types.errors import BadInput


@pytest.fixture
def there(project: Install) -> Project:
    made = project("mini_t")
    made.commit(mini_t="one = 1")
    made.commit(mini_t="two = 2")
    return made


def test_a_commit_has_many_names(there: Project) -> None:
    repository = repository_of(there.repo / ".git" / "..")
    head = run_git(there.repo, "rev-parse", "HEAD")
    subject = run_git(there.repo, "log", "-1", "--format=%s")
    run_git(there.repo, "tag", "--annotate", "v1", "--message", "a tag")
    for name in ("HEAD", "main", "refs/heads/main", "v1", head, head[:8], "@", "main@{0}", f":/{subject}"):
        assert commit_of(repository, name) == head
    assert commit_of(repository, "HEAD~") == run_git(there.repo, "rev-parse", "HEAD~")


def test_commits_of_base_that_head_lacks_are_counted(there: Project) -> None:
    repository = repository_of(there.repo)
    run_git(there.repo, "checkout", "--quiet", "-b", "older", "HEAD~")
    assert commits_lacking(repository, "main", "older") == 1
    assert commits_lacking(repository, "older", "main") == 0
    assert commits_lacking(repository, "main", "nowhere") == 0


@pytest.mark.parametrize(
    "ref",
    [
        "mian",
        "",
        "--help",
        "HEAD~7",
        "HEAD:mini_t.py",
        "0" * 40,
        "a b",
        "^HEAD",
        "HEAD~..HEAD",
    ],
)
def test_what_names_none_is_refused(there: Project, ref: str) -> None:
    with pytest.raises(BadInput, match="no commit") as failure:
        commit_of(repository_of(there.repo), ref)
    assert repr(ref) in str(failure.value)
    assert ("did you mean 'main'?" in str(failure.value)) == (ref == "mian")


def test_a_shallow_clone_is_told_what_it_lacks(there: Project, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    run_git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{there.repo}", str(clone))
    assert commit_of(repository_of(clone), "HEAD")
    with pytest.raises(BadInput, match=r"fetch-depth: 0.*GIT_DEPTH: 0"):
        commit_of(repository_of(clone), "HEAD~")


def test_without_a_commit(project: Install) -> None:
    with pytest.raises(BadInput, match="has no commit yet"):
        commit_of(repository_of(project("mini_t").repo), "HEAD")


def test_a_bare_repository_and_gits_own_folder(there: Project, tmp_path: Path) -> None:
    run_git(tmp_path, "clone", "--quiet", "--bare", str(there.repo), "bare")
    with pytest.raises(BadInput, match=r"working tree.*work tree"):
        repository_of(tmp_path / "bare")
    with pytest.raises(BadInput, match=r"working tree.*work tree"):
        repository_of(there.repo / ".git")


def test_without_git(there: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BadInput, match="git, which is not installed"):
        repository_of(there.repo)


def test_gits_own_reason_is_handed_on(there: Project) -> None:
    (there.repo / ".git" / "config").write_text("[core\n")
    with pytest.raises(BadInput, match=r"working tree.*bad config"):
        repository_of(there.repo)
    with pytest.raises(GitFailed, match="bad config"):
        git(there.repo, "status")


def test_what_the_repository_holds(there: Project, tmp_path: Path) -> None:
    (there.repo / ".gitignore").write_text("build/\nforced.py\n")
    there.write(build__made="", forced="", untracked="")
    run_git(there.repo, "add", "--force", "forced.py")
    inner = there.repo / "inner"
    inner.mkdir()
    run_git(inner, "init", "--quiet")
    (inner / "a.py").write_text("")
    repository = repository_of(there.repo)
    held = [name for name in ("mini_t.py", "build", "forced.py", "untracked.py", "inner", "inner/a.py")
            if repository.holds(there.repo / name)]  # fmt: skip
    assert held == ["mini_t.py", "forced.py", "untracked.py"]
    assert not repository.holds(tmp_path)
    assert repository.tracked(there.repo) == {there.repo / "mini_t.py", there.repo / "forced.py"}
