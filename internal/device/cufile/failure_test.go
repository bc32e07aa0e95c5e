// SPDX-License-Identifier: Apache-2.0

package cufile_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device/cufile"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// TestEachCallCanFail makes every call fail in turn; nothing is left behind.
func TestEachCallCanFail(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	fake := g.BuildCuFile(fakegpu.CuFileOptions{})
	l, dev := find(t, fake), g.Open("cuda:0")
	f, _ := content(t, 8192)
	b, err := dev.Alloc(8192)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	all := func() error {
		s, err := l.Open(dev.(cufile.Contexts), dev.Info())
		if err != nil {
			return err
		}
		use := func() error {
			if err := s.StartCounting(); err != nil {
				return err
			}
			un, err := s.Register(b)
			if err != nil {
				return err
			}
			d, err := s.OpenFile(int(f.Fd()))
			if err != nil {
				return err
			}
			_, e1 := d.Read(b.Ptr(), 0, 4096, 0)
			_, e2 := d.Write(b.Ptr(), 0, 4096, 0)
			_, e3 := s.Counters()
			return errors.Join(e1, e2, e3, d.Close(), un())
		}
		return errors.Join(use(), s.Close())
	}
	for fn, times := range map[string]int{"cuFileDriverOpen": 1, "cuFileBufRegister": 1, "cuFileHandleRegister": 1,
		"cuFileRead": 1, "cuFileWrite": 1,
		"cuFileGetStatsLevel": 1, "cuFileSetStatsLevel": 1, "cuFileStatsStart": 2, "cuFileGetStatsL3": 1} {
		fake.Fail(fn, 0, times, 5030)
		if err := all(); cufile.Code(err) != 5030 || !strings.Contains(err.Error(), fn) || errs.FixOf(err) == "" &&
			times == 1 {
			t.Errorf("%s: %v", fn, err)
		}
		fake.CheckFreed()
	}
	fake.Fail("cuFileStatsStart", 0, 1, 5030) // once is forgiven
	if err := all(); err != nil {
		t.Error(err)
	}
	fake.FailCUDA("cuFileHandleRegister", 1, 719)
	if err := all(); cufile.Code(err) != 5011 || !strings.Contains(err.Error(), "CUDA error 719") {
		t.Errorf("%v", err)
	}
	fake.Fail("cuFileDriverOpen", 0, 1, -22)
	if err := all(); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "cufile.json") {
		t.Errorf("%v", err)
	}
	fake.CheckFreed()
	fake.Fail("cuFileDriverClose_v2", 0, 1, 5006)
	if err := all(); cufile.Code(err) != 5006 {
		t.Errorf("%v", err)
	}
}

func TestBothWaysOfFailing(t *testing.T) {
	r := newRig(t, fakegpu.CuFileOptions{})
	f, _ := content(t, 8192)
	d := r.open(t, f)
	for _, c := range []struct {
		code int
		kind errs.Kind
		is   error
	}{{5014, errs.Invalid, nil}, {5044, errs.IO, nil}, {5036, errs.NoMemory, nil}, {5999, errs.Device, nil}} {
		for _, fn := range []string{"cuFileRead", "cuFileWrite"} {
			r.fake.Fail(fn, 0, 1, c.code)
			r.fake.FailInErrno(fn, 1, c.code)
			for range 2 {
				move := d.Read
				if fn == "cuFileWrite" {
					move = d.Write
				}
				n, err := move(r.buf.Ptr(), 0, 4096, 0)
				if n != 0 || cufile.Code(err) != c.code || !errs.Is(err, c.kind) || errs.FixOf(err) == "" {
					t.Errorf("%s, %d: %d, %v", fn, c.code, n, err)
				}
			}
		}
	}
	r.fake.FailInErrno("cuFileRead", 1, int(syscall.EIO))
	if _, err := d.Read(r.buf.Ptr(), 0, 1, 0); !errors.Is(err, syscall.EIO) || !errs.Is(err, errs.IO) {
		t.Errorf("%v", err)
	}
	r.fake.FailInErrno("cuFileRead", 1, 0)
	if _, err := d.Read(r.buf.Ptr(), 0, 1, 0); !errs.Is(err, errs.IO) ||
		!strings.Contains(err.Error(), "without saying why") {
		t.Errorf("%v", err)
	}
	r.fake.Fail("cuFileRead", 0, 1, int(syscall.EIO))
	if _, err := d.Read(r.buf.Ptr(), 0, 1, 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
	ro, err := os.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer ro.Close()
	if _, err := r.open(t, ro).Write(r.buf.Ptr(), 0, 1, 0); !errors.Is(err, syscall.EBADF) {
		t.Errorf("a write to a file that is open for reading: %v", err)
	}
}

func TestWhatTheLibraryRefuses(t *testing.T) {
	r := newRig(t, fakegpu.CuFileOptions{})
	f, _ := content(t, 4096)
	d := r.open(t, f)
	if _, err := r.OpenFile(int(f.Fd())); cufile.Code(err) != 5028 {
		t.Errorf("a descriptor twice: %v", err)
	}
	if _, err := r.OpenFile(-1); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
	if _, err := r.Register(r.buf); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Register(r.buf); cufile.Code(err) != 5023 {
		t.Errorf("a buffer twice: %v", err)
	}
	for _, a := range [][3]int64{{-1, 1, 0}, {0, -1, 0}, {0, 1, -1}, {0, 1, 1<<63 - 1}} {
		if _, err := d.Read(r.buf.Ptr(), a[0], a[1], a[2]); !errs.Is(err, errs.Invalid) {
			t.Errorf("read at %v: %v", a, err)
		}
	}
	if _, err := d.Read(0, 0, 1, 0); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
	if _, err := d.Read(r.buf.Ptr(), bufferSize-10, 11, 0); cufile.Code(err) != 5014 {
		t.Errorf("behind the buffer: %v", err)
	}
	freed, err := r.dev.Alloc(10)
	if err != nil {
		t.Fatal(err)
	}
	freed.Free()
	if _, err := r.Register(freed); !errs.Is(err, errs.Invalid) {
		t.Errorf("a freed buffer: %v", err)
	}
	os.Remove(f.Name())
	again, _ := content(t, 10)
	os.Remove(again.Name())
	if _, err := r.OpenFile(int(again.Fd())); cufile.Code(err) != 5031 || !strings.Contains(errs.FixOf(err), "a name") {
		t.Errorf("a deleted file: %v", err)
	}
}

func TestOlderLibraries(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	if _, err := cufile.Find(g.BuildCuFile(fakegpu.CuFileOptions{Without: []string{"cuFileRead",
		"cuFileBufRegister"}}).Path); !errs.Is(err, errs.Unsupported) ||
		!strings.Contains(err.Error(), "missing cuFileBufRegister, cuFileRead") || errs.FixOf(err) == "" {
		t.Errorf("%v", err)
	}
	if _, err := cufile.Find(filepath.Join(t.TempDir(), "libcufile.so.0")); !errs.Is(err, errs.Unsupported) ||
		!strings.Contains(errs.FixOf(err), "install") {
		t.Errorf("%v", err)
	}
	old := []string{"cuFileDriverClose_v2", "cuFileUseCount", "cuFileGetVersion", "cuFileGetParameterSizeT",
		"cuFileGetParameterBool", "cuFileGetParameterString",
		"cuFileSetParameterSizeT", "cuFileSetParameterBool", "cuFileSetParameterString", "cuFileSetStatsLevel",
		"cuFileGetStatsLevel", "cuFileStatsStart", "cuFileStatsStop",
		"cuFileStatsReset", "cuFileGetStatsL1", "cuFileGetStatsL2", "cuFileGetStatsL3"}
	r := newRig(t, fakegpu.CuFileOptions{Without: old})
	f, want := content(t, 4096)
	d := r.open(t, f)
	if n, err := d.Read(r.buf.Ptr(), 0, 4096, 0); err != nil || n != 4096 ||
		!bytes.Equal(r.gpu.Bytes(r.buf.Ptr(), n), want) {
		t.Errorf("%d, %v", n, err)
	}
	if err := r.StartCounting(); !errs.Is(err, errs.Unsupported) ||
		!strings.Contains(err.Error(), "cuFileSetStatsLevel is missing") || !strings.Contains(errs.FixOf(err), "1.15") {
		t.Errorf("%v", err)
	}
	if c, err := r.Counters(); err != nil || c.Known {
		t.Errorf("%+v, %v", c, err)
	}
	if v := r.Version(); v != "before 1.8" {
		t.Error(v)
	}
	_, e1 := r.lib.SizeParameter("max_io_threads")
	_, e2 := r.lib.StatsL1()
	_, e3 := r.lib.StatsL3()
	for _, err := range []error{e1, e2, e3, r.lib.SetBoolParameter("parallel_io", true), r.lib.StatsReset(),
		r.lib.StatsStop(), r.lib.SetStatsLevel(1)} {
		if !errs.Is(err, errs.Unsupported) {
			t.Errorf("%v", err)
		}
	}
	if err := r.Close(); err != nil {
		t.Errorf("the older driver close: %v", err)
	}
	r.fake.CheckFreed()
}
