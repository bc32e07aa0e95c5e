// SPDX-License-Identifier: Apache-2.0

package dl_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/nebulaio/nebulaio/internal/dl"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// libc is on every machine that can load a GPU driver.
func libc(t *testing.T) *dl.Library {
	t.Helper()
	l, err := dl.Open("no-such-library.so.9", "libc.so.6")
	if err != nil {
		t.Skipf("no glibc here: %v", err)
	}
	return l
}

func TestOpenTriesEachNameInTurn(t *testing.T) {
	if got := libc(t).Name(); got != "libc.so.6" {
		t.Errorf("opened %q", got)
	}
	a, b := filepath.Join(t.TempDir(), "a.so"), "no-such-library.so.9"
	_, err := dl.Open(a, b)
	if !errs.Is(err, errs.NotFound) {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{a + ": cannot open", b + ": cannot open"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not have %q: %v", part, err)
		}
	}
}

func TestLookupTakesTheFirstNameThereIs(t *testing.T) {
	l := libc(t)
	if l.Lookup("no_such_function") != 0 || l.Lookup() != 0 {
		t.Error("found what is not there")
	}
	if f := l.Lookup("strlen_v9", "strlen"); f == 0 || f != l.Lookup("strlen") {
		t.Error("an older name was not tried")
	}
}

func TestCallPassesIntegersAndPointers(t *testing.T) {
	l := libc(t)
	text := []byte("nebula\x00")
	if n := l.Lookup("strlen").Call(unsafe.Pointer(&text[0])); n != 6 {
		t.Errorf("strlen gave %d", n)
	}
	labs := l.Lookup("labs")
	for _, v := range []any{-7, int32(-7), uint64(1<<64 - 7), uintptr(7)} {
		if got := labs.Call(v); got != 7 {
			t.Errorf("labs(%T %v) = %d", v, v, got)
		}
	}
	a, b := [4]uint64{1, 2, 3, 4}, [4]uint64{}
	l.Lookup("memcpy").Call(unsafe.Pointer(&b), unsafe.Pointer(&a), 32)
	if a != b {
		t.Errorf("%v", b)
	}
}

// What a pointer argument points to must stay where it is while C writes to it,
// however the stacks of goroutines grow and move.
func TestPointeesStayInPlace(t *testing.T) {
	memset := libc(t).Lookup("memset")
	var deep func(n int) byte
	deep = func(n int) byte {
		var local [64]byte
		memset.Call(unsafe.Pointer(&local), n&0xff, len(local))
		if n > 0 {
			if got := deep(n - 1); got != byte(n-1) {
				t.Errorf("level %d saw %d", n-1, got)
			}
		}
		return local[63]
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				if deep(100) != 100 {
					t.Error("a value was lost")
				}
				runtime.GC()
			}
		})
	}
	wg.Wait()
}

func TestMisusePanics(t *testing.T) {
	for name, f := range map[string]func(){
		"a symbol not found": func() { dl.Func(0).Call() },
		"a string":           func() { libc(t).Lookup("strlen").Call("text") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was called", name)
				}
			}()
			f()
		}()
	}
}

func TestGoString(t *testing.T) {
	b := []byte("nebula\x00rest")
	p := uintptr(unsafe.Pointer(&b[0]))
	for limit, want := range map[int]string{100: "nebula", 6: "nebula", 3: "neb", 0: ""} {
		if limit > len(b) {
			limit = len(b)
		}
		if got := dl.GoString(p, limit); got != want {
			t.Errorf("limit %d: %q", limit, got)
		}
	}
	runtime.KeepAlive(b)
	if dl.GoString(0, 10) != "" {
		t.Error("NULL is not empty")
	}
}

// TestErrorsOfManyThreadsNameTheirLibrary opens missing libraries from many goroutines, which change threads often.
func TestErrorsOfManyThreadsNameTheirLibrary(t *testing.T) {
	var all sync.WaitGroup
	for i := range 64 {
		name := fmt.Sprintf("/nonexistent/lib%d.so", i)
		all.Go(func() {
			for range 500 {
				if _, err := dl.Open(name); err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	all.Wait()
}
