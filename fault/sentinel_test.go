// SPDX-License-Identifier: Apache-2.0

package fault_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/fault"
)

func sentinels() []fault.Sentinel {
	return []fault.Sentinel{fault.ErrOther, fault.ErrInvalid, fault.ErrNotFound, fault.ErrPermission, fault.ErrCorrupt,
		fault.ErrIO,
		fault.ErrDevice, fault.ErrNoMemory, fault.ErrUnsupported, fault.ErrCancelled, fault.ErrClosed}
}

func TestEveryKindHasItsSentinel(t *testing.T) {
	var kinds []fault.Kind
	for _, s := range sentinels() {
		kinds = append(kinds, s.Kind())
		if s.Error() != s.Kind().String() {
			t.Errorf("%v says %q", s.Kind(), s.Error())
		}
	}
	if !slices.Equal(kinds, fault.Kinds()) {
		t.Errorf("sentinels stand for %v, expected %v", kinds, fault.Kinds())
	}
}

func TestSentinelMatchesItsKindAlone(t *testing.T) {
	for _, k := range fault.Kinds() {
		err := fmt.Errorf("outside: %w", &fault.Error{Kind: k, Op: "load"})
		for _, s := range sentinels() {
			if errors.Is(err, s) != (s.Kind() == k) {
				t.Errorf("errors.Is(%v, %v) is %v", k, s, errors.Is(err, s))
			}
		}
	}
}

func TestSentinelMatchesCauses(t *testing.T) {
	err := error(&fault.Error{Kind: fault.Corrupt, Op: "load",
		Err: &fault.Error{Kind: fault.IO, Op: "read", Err: syscall.ENOSPC}})
	if !errors.Is(err, fault.ErrCorrupt) || !errors.Is(err, fault.ErrIO) || errors.Is(err, fault.ErrInvalid) {
		t.Error("an error matches its own kind and those of its causes, and no other")
	}
	// Without a kind of its own an error has that of its cause.
	if err := (&fault.Error{Op: "open", Err: fs.ErrNotExist}); !errors.Is(err, fault.ErrNotFound) {
		t.Errorf("%v is not found", err)
	}
}

func TestKindOfSentinel(t *testing.T) {
	if k := fault.KindOf(fmt.Errorf("my own: %w", fault.ErrClosed)); k != fault.Closed {
		t.Errorf("kind %v, expected %v", k, fault.Closed)
	}
}
