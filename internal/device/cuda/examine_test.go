// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/devicetest"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestExamineSaysWhatIsWrongWithAnAddress(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	a, b := g.Open("cuda:0"), g.Open("cuda:1")
	ours, theirs, gone := devicetest.Buffer(t, a, 4096), devicetest.Buffer(t, b, 4096), devicetest.Buffer(t, a, 1<<20)
	pinned, plain := devicetest.HostBytes(t, 1<<21), devicetest.HostBytes(t, 4096)
	unregister, err := a.Register(pinned)
	must(t, err)
	defer unregister()
	adopted := devicetest.HostBytes(t, 8192) // of another library in this process
	g.Adopt(adopted, 0)
	freed := gone.Ptr()
	must(t, gone.Free())
	e := a.(device.Examiner)
	for _, c := range []struct {
		p    device.Ptr
		n    int64
		says string // empty: it is fine
	}{
		{ours.Ptr(), 4096, ""},
		{ours.Ptr() + 4095, 1, ""},
		{g.Pointer(adopted) + 96, 8096, ""},
		{freed, 0, ""},
		{ours.Ptr(), 4097, "has 4096 bytes"},
		{ours.Ptr() + 4000, 97, "of which 96 lie behind"},
		{theirs.Ptr(), 10, "it lies on cuda:1, expected cuda:0"},
		{freed, 1, "no allocation there: it was freed"},
		{g.Pointer(pinned), 1, "this is host memory"},
		{g.Pointer(plain), 1, "the CPU can read that address"},
		{0, 1, "the address is 0"},
		{ours.Ptr(), -1, "negative"},
	} {
		err := e.Examine(c.p, c.n)
		if c.says == "" {
			if err != nil {
				t.Errorf("%d bytes at 0x%x: %v", c.n, c.p, err)
			}
			continue
		}
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(err.Error(), fmt.Sprintf("%d bytes at 0x%x", c.n, uint64(c.p))) || errs.FixOf(err) == "" {
			t.Errorf("%d bytes at 0x%x: %v, expected %q", c.n, c.p, err, c.says)
		}
	}
	g.Fail("cuPointerGetAttributes", 0, 1, fakegpu.LaunchFailed)
	if err := e.Examine(ours.Ptr(), 1); !errs.Is(err, errs.Device) {
		t.Errorf("a driver that fails: %v", err)
	}
	g.CheckIdle()
}

func TestAnOldDriverExaminesNothing(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Without: []string{"cuPointerGetAttributes"}})
	d := g.Open("cuda:0")
	if err := d.(device.Examiner).Examine(4096, 1); err != nil {
		t.Error(err)
	}
}
