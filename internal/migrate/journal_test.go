// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func open(t *testing.T, path, source string) *Journal {
	t.Helper()
	j, err := OpenJournal(path, source, "http://target", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func TestJournalGoesOnWhereItEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "journal.json")
	j := open(t, path, "http://source")
	u := Upload{"b", "k", "id"}
	for _, err := range []error{j.passed("b", "k1", false), j.began(u), j.passed("c", "", true)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenJournal(path, "http://source", "http://target", ""); errs.KindOf(err) != errs.Invalid ||
		!strings.Contains(err.Error(), "another process") {
		t.Errorf("a second process gets %v", err)
	}
	_ = j.Close()
	j = open(t, path, "http://source")
	if j.after("b") != "k1" || j.after("c") != "" || len(j.uploads()) != 1 || j.uploads()[0] != u {
		t.Errorf("after a restart: %q, %q, %v", j.after("b"), j.after("c"), j.uploads())
	}
	if err := j.passed("b", "k0", false); err != nil || j.after("b") != "k1" {
		t.Errorf("a slower worker moved the place back to %q (%v)", j.after("b"), err)
	}
	if err := j.ended(u); err != nil || len(j.uploads()) != 0 {
		t.Errorf("uploads %v (%v)", j.uploads(), err)
	}
	if err := j.finish(); err != nil || j.after("b") != "" {
		t.Errorf("after the end, the next run begins after %q (%v)", j.after("b"), err)
	}
}

func TestJournalOfAnotherMigrationIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.json")
	j := open(t, path, "http://source")
	if err := j.finish(); err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	_, err := OpenJournal(path, "http://other", "http://target", "")
	if errs.KindOf(err) != errs.Invalid || !strings.Contains(err.Error(), `"http://source"`) {
		t.Errorf("another source gets %v", err)
	}
	for _, text := range []string{"", "{", "[]", `{"format":2,"buckets":{}}`, `{"format":1}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenJournal(path, "http://source", "http://target", ""); errs.KindOf(err) != errs.Invalid {
			t.Errorf("a journal of %q gets %v", text, err)
		}
	}
}
