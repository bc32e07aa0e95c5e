// SPDX-License-Identifier: Apache-2.0

package errs_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestAnErrorIsOneLineWithPlaceReasonAndRemedy(t *testing.T) {
	cause := errors.New("disk on fire")
	for want, e := range map[string]*errs.Error{
		"load m.safetensors: too short: disk on fire (fix: buy another)": {Op: "load", Name: "m.safetensors",
			Msg: "too short", Err: cause, Fix: "buy another"},
		"load: too short":    {Op: "load", Msg: "too short"},
		"load: disk on fire": {Op: "load", Err: cause},
		"load":               {Op: "load"},
		"m.safetensors":      {Name: "m.safetensors"},
		"disk on fire":       {Err: cause},
		"":                   {},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got %q, expected %q", got, want)
		}
	}
}

func TestKindOf(t *testing.T) {
	_, missing := os.Open(filepath.Join(t.TempDir(), "missing"))
	inner := errs.New(errs.Corrupt, "parse", "x", "bad")
	for _, c := range []struct {
		err  error
		want errs.Kind
	}{
		{nil, 0},
		{errors.New("x"), errs.Other},
		{inner, errs.Corrupt},
		{fmt.Errorf("around: %w", inner), errs.Corrupt},
		{&errs.Error{Op: "load", Err: inner}, errs.Corrupt},
		{&errs.Error{Kind: errs.IO, Err: inner}, errs.IO},
		{&errs.Error{Op: "load"}, errs.Other},
		{&errs.Error{Op: "load", Err: context.Canceled}, errs.Cancelled},
		{errors.Join(errors.New("x"), inner), errs.Corrupt},
		{errs.Wrap("load", "x", context.DeadlineExceeded), errs.Cancelled},
		{missing, errs.NotFound},
		{fs.ErrPermission, errs.Permission},
		{syscall.EACCES, errs.Permission},
		{syscall.EPERM, errs.Permission},
		{syscall.ENOENT, errs.NotFound},
		{syscall.ENOMEM, errs.NoMemory},
		{syscall.EOPNOTSUPP, errs.Unsupported},
		{syscall.ENOSYS, errs.Unsupported},
		{syscall.EIO, errs.IO},
	} {
		if got := errs.KindOf(c.err); got != c.want {
			t.Errorf("%v: %v, expected %v", c.err, got, c.want)
		}
		for _, k := range errs.Kinds() {
			if errs.Is(c.err, k) != (k == c.want) {
				t.Errorf("Is(%v, %v) is wrong", c.err, k)
			}
		}
	}
}

func TestWrapKeepsTheCause(t *testing.T) {
	if errs.Wrap("load", "x", nil) != nil {
		t.Error("wrapping nothing gave an error")
	}
	err := errs.Wrap("load", "x", fmt.Errorf("deep: %w", fs.ErrNotExist))
	var e *errs.Error
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &e) || e.Op != "load" || e.Name != "x" ||
		e.Kind != errs.NotFound {
		t.Errorf("got %+v", e)
	}
}

// Programs that import this package look for Go's own errors, whatever made ours.
func TestIsFindsGosOwnErrors(t *testing.T) {
	all := []error{fs.ErrNotExist, fs.ErrPermission, fs.ErrInvalid, fs.ErrClosed, context.Canceled,
		context.DeadlineExceeded, errors.ErrUnsupported, syscall.ENOMEM}
	of := func(k errs.Kind) error { return errs.New(k, "read", "s3://b/k", "no") }
	for _, c := range []struct{ err, want error }{
		{of(errs.NotFound), fs.ErrNotExist},
		{of(errs.Permission), fs.ErrPermission},
		{of(errs.Invalid), fs.ErrInvalid},
		{of(errs.Closed), fs.ErrClosed},
		{of(errs.Cancelled), context.Canceled},
		{of(errs.Unsupported), errors.ErrUnsupported},
		{of(errs.NoMemory), syscall.ENOMEM},
		{of(errs.IO), nil},
		{of(errs.Corrupt), nil},
		{of(errs.Device), nil},
		{of(errs.Other), nil},
		{errs.Wrap("load", "x", of(errs.NotFound)), fs.ErrNotExist},
		{fmt.Errorf("around: %w", of(errs.Permission)), fs.ErrPermission},
		{errs.Wrap("load", "x", context.DeadlineExceeded), context.DeadlineExceeded},
		{errs.Wrap("load", "x", errs.Wrap("read", "y", context.DeadlineExceeded)), context.DeadlineExceeded},
	} {
		for _, target := range all {
			if errors.Is(c.err, target) != (target == c.want) {
				t.Errorf("errors.Is(%v, %v) is %v", c.err, target, target != c.want)
			}
		}
	}
}

func TestTheOutermostFixWins(t *testing.T) {
	inner := errs.New(errs.IO, "read", "x", "short").WithFix("read again")
	outer := &errs.Error{Op: "load", Err: inner, Fix: "load again"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{outer, "load again"},
		{errs.Wrap("load", "m", inner), "read again"},
		{fmt.Errorf("around: %w", inner), "read again"},
		{errors.New("x"), ""},
		{nil, ""},
		{&errs.Error{Op: "load"}, ""},
	} {
		if got := errs.FixOf(c.err); got != c.want {
			t.Errorf("%v: fix %q, expected %q", c.err, got, c.want)
		}
	}
	if plain := errs.New(errs.IO, "read", "x", "short"); plain.WithFix("y") == plain || plain.Fix != "" {
		t.Error("WithFix changed its receiver")
	}
}

// Descriptors that have run out have one remedy, wherever they run out. What says one itself keeps its own.
func TestNoDescriptorsLeftHasARemedy(t *testing.T) {
	err := errs.Wrap("load", "m", errs.Wrap("open", "f", &fs.PathError{Op: "open", Path: "f", Err: syscall.EMFILE}))
	if want := "load m: open f: open f: too many open files (fix: close files, or raise the limit of open files " +
		"(ulimit -n))"; err.Error() != want {
		t.Errorf("%v", err)
	}
	own := errs.Wrap("open", "f", (&errs.Error{Op: "open", Err: syscall.EMFILE}).WithFix("mine"))
	if errs.FixOf(own) != "mine" {
		t.Errorf("%v", own)
	}
}

// The numbers are the status codes of the C ABI: new kinds are appended.
func TestKindsNeverChange(t *testing.T) {
	want := []struct {
		name string
		exit int
	}{
		{"error", 1}, {"invalid", 2}, {"not found", 3}, {"permission denied", 4}, {"corrupt", 5}, {"i/o error", 6},
		{"device error", 7}, {"out of memory", 8}, {"unsupported", 9}, {"cancelled", 130}, {"closed", 1},
	}
	kinds := errs.Kinds()
	if len(kinds) < len(want) {
		t.Fatalf("%d kinds, there were %d", len(kinds), len(want))
	}
	for i, w := range want {
		k := kinds[i]
		if int(k) != i+1 || k.String() != w.name || k.ExitCode() != w.exit {
			t.Errorf("kind %d is %d %q with exit code %d, expected %d %q %d", i, k, k, k.ExitCode(), i+1, w.name, w.exit)
		}
	}
}

func TestMessageOfHasNoFixAtAnyDepth(t *testing.T) {
	inner := errs.New(errs.Invalid, "back up store", "/b", "exists already").WithFix("name another")
	for _, err := range []error{inner, errs.Wrap("ask", "x", inner), fmt.Errorf("around: %w", inner),
		errors.Join(inner, errors.New("more"))} {
		if got := errs.MessageOf(err); strings.Contains(got, "fix") ||
			!strings.Contains(got, "back up store /b: exists already") || errs.FixOf(err) == "" {
			t.Errorf("MessageOf(%v) is %q", err, got)
		}
	}
}
