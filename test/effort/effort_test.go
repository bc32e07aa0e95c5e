// SPDX-License-Identifier: Apache-2.0

package effort

import (
	"fmt"
	"strings"
	"testing"
)

// recorder is a testing.TB that records how a test ended.
type recorder struct {
	testing.TB
	failed, skipped string
}

// ended is what a recorder panics with, because a test does not go on after Fatal or Skip.
type ended struct{}

func (*recorder) Helper() {}

func (r *recorder) Fatal(args ...any) {
	r.failed = fmt.Sprint(args...)
	panic(ended{})
}

func (r *recorder) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

func (r *recorder) Skip(args ...any) {
	r.skipped = fmt.Sprint(args...)
	panic(ended{})
}

// record calls f with a recorder, and returns it when f has returned or ended its test.
func record(f func(testing.TB)) (r *recorder) {
	r = &recorder{}
	defer func() {
		if e := recover(); e != nil && e != (ended{}) {
			panic(e)
		}
	}()
	f(r)
	return r
}

func TestRounds(t *testing.T) {
	for _, c := range []struct {
		word   string
		rounds Rounds
		want   int
	}{
		{"", Rounds{2, 8, 200}, 2}, {"check", Rounds{2, 8, 200}, 2}, {"test", Rounds{2, 8, 200}, 2},
		{"ci", Rounds{2, 8, 200}, 8}, {"long", Rounds{2, 8, 200}, 200},
		{"long", Rounds{Test: 2, CI: 8}, 8}, // nothing is said of long runs
		{"0.5", Rounds{2, 8, 200}, 4}, {"1", Rounds{2, 8, 200}, 8}, {"30", Rounds{2, 8, 200}, 240},
		{"0.01", Rounds{2, 8, 200}, 1},
	} {
		t.Setenv(Variable, c.word)
		if got := c.rounds.Of(t); got != c.want {
			t.Errorf("%s=%s: %d rounds of %+v, expected %d", Variable, c.word, got, c.rounds, c.want)
		}
	}
}

func TestUnknownWordsFail(t *testing.T) {
	for _, word := range []string{"lnog", "CI", " ", "0", "-1", "nan", "inf", "2x"} {
		t.Setenv(Variable, word)
		r := record(func(t testing.TB) { Rounds{2, 8, 200}.Of(t) })
		if want := fmt.Sprintf("%s is %q", Variable, word); !strings.HasPrefix(r.failed, want) {
			t.Errorf("%s=%s: the failure is %q, expected %q", Variable, word, r.failed, want)
		}
	}
}

func TestWhatIsSkipped(t *testing.T) {
	for word, skips := range map[string]struct{ slow, atLength bool }{
		"check": {true, true}, "": {false, true}, "test": {false, true}, "ci": {}, "long": {}, "2": {},
	} {
		t.Setenv(Variable, word)
		if got := record(Slow).skipped != ""; got != skips.slow {
			t.Errorf("%s=%s: Slow skips: %v", Variable, word, got)
		}
		if got := record(AtLength).skipped != ""; got != skips.atLength {
			t.Errorf("%s=%s: AtLength skips: %v", Variable, word, got)
		}
	}
	if got := record(SingleThreaded).skipped != ""; got != detector {
		t.Errorf("SingleThreaded skips: %v, under the race detector: %v", got, detector)
	}
}

func TestNumber(t *testing.T) {
	const name = "NEBULAIO_TEST_NUMBER"
	t.Setenv(name, "")
	if n := Number(t, name, 7); n != 7 {
		t.Errorf("%d, expected 7", n)
	}
	t.Setenv(name, "-12")
	if n := Number(t, name, 7); n != -12 {
		t.Errorf("%d, expected -12", n)
	}
	t.Setenv(name, "12x")
	if r := record(func(t testing.TB) { Number(t, name, 7) }); !strings.Contains(r.failed, `"12x"`) {
		t.Errorf("the failure is %q", r.failed)
	}
}
