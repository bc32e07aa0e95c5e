// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestHostIsNotCalledAGPU(t *testing.T) {
	for _, d := range []device.Device{host.New(), host.Staged()} {
		if i := d.Info(); i.ID != "host" || i.Kind != device.Host || i.TotalMemory <= 0 || i.NUMANode != -1 {
			t.Errorf("%+v", i)
		}
	}
}

func TestOnlyTheInPlaceDeviceIsAddressable(t *testing.T) {
	if _, ok := device.Device(host.New()).(device.Mapper); !ok {
		t.Error("New cannot be read into in place")
	}
	if _, ok := device.Device(host.Staged()).(device.Mapper); ok {
		t.Error("Staged can be read into in place")
	}
}

func TestCopiesAndMarks(t *testing.T) {
	d := host.Staged()
	q, err := d.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(1000)
	if err != nil {
		t.Fatal(err)
	}
	p := b.Ptr()
	if b.Size() != 1000 || p%256 != 0 {
		t.Errorf("%d bytes at 0x%x", b.Size(), p)
	}
	m, err := q.NewMark()
	if err != nil {
		t.Fatal(err)
	}
	if done, err := m.Done(); !done || err != nil {
		t.Errorf("a mark never recorded: %v %v", done, err)
	}
	in, out := bytes.Repeat([]byte("nebulaio"), 125), make([]byte, 1000)
	if err := errors.Join(q.CopyIn(p, in), q.CopyOut(out, p), m.Record(), m.Wait()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(in, out) {
		t.Error("bytes differ")
	}
	if done, err := m.Done(); !done || err != nil {
		t.Errorf("after Wait: %v %v", done, err)
	}
	unregister, err := d.Register(in)
	if err := errors.Join(err, unregister(), q.After(0), q.Drain(), m.Close(), q.Close(), b.Free(), b.Free(),
		d.Close()); err != nil {
		t.Error(err)
	}
	if err := q.CopyIn(p, in); !errs.Is(err, errs.Closed) {
		t.Errorf("a closed queue took a copy: %v", err)
	}
}

func TestHostHasNoStreamsOfOthers(t *testing.T) {
	q, err := host.New().NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if err := q.After(0x1234); !errs.Is(err, errs.Invalid) {
		t.Errorf("got %v", err)
	}
}

func TestMapIsTheMemoryItself(t *testing.T) {
	d := host.New()
	b, err := d.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	copy(d.Map(b.Ptr()+10, 5), "hello")
	if got := d.Map(b.Ptr(), 4096)[10:15]; string(got) != "hello" {
		t.Errorf("%q", got)
	}
	if _, err := d.Alloc(0); !errs.Is(err, errs.Invalid) {
		t.Errorf("nothing was allocated: %v", err)
	}
}
