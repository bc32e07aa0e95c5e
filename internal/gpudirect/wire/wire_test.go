// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// types lists every type of message.
func types() []Type {
	var all []Type
	for t := TypeHello; t <= TypeError; t++ {
		all = append(all, t)
	}
	return all
}

// fill gives every field under v a random value; lists have up to most entries.
func fill(r *rand.Rand, v reflect.Value, most int) {
	switch v.Interface().(type) {
	case time.Time:
		if r.IntN(4) > 0 {
			v.Set(reflect.ValueOf(time.Unix(0, r.Int64()-r.Int64()).UTC()))
		}
		return
	case time.Duration:
		v.SetInt(r.Int64() - r.Int64())
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i), most)
		}
	case reflect.Pointer: // the error of an item
		if r.IntN(3) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), most)
		}
	case reflect.Slice:
		if n := r.IntN(most + 1); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(r, v.Index(i), most)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(r.Uint32() & 255))
		}
	case reflect.String:
		b := make([]byte, r.IntN(20))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		v.SetString(string(b))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 1)
	case reflect.Uint8:
		v.SetUint(uint64(r.Uint32() & 255))
	case reflect.Uint16:
		v.SetUint(uint64(r.Uint32() & 0xffff))
	case reflect.Uint32:
		v.SetUint(uint64(r.Uint32()))
	case reflect.Uint64:
		v.SetUint(r.Uint64())
	case reflect.Int32:
		v.SetInt(int64(int32(r.Uint32())))
	case reflect.Int64:
		v.SetInt(int64(r.Uint64()))
	default:
		panic(v.Type())
	}
	if o, ok := v.Addr().Interface().(*OpenedItem); ok && o.Err != nil {
		*o = OpenedItem{Err: o.Err} // the rest is empty
	}
}

// TestEveryMessageReadsBackAsItself.
func TestEveryMessageReadsBackAsItself(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, typ := range types() {
		for range 60 {
			m := blank(typ)
			fill(r, reflect.ValueOf(m).Elem(), 1+r.IntN(12))
			h := Header{Type: typ, Flags: uint8(r.IntN(2)), Descriptors: uint16(r.IntN(MaxDescriptors)), Request: r.Uint32()}
			b, err := Append([]byte("before"), h, m)
			if err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
			gotH, got, err := Decode(b[len("before"):])
			if err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
			if gotH != h || !reflect.DeepEqual(got, m) {
				t.Fatalf("%+v %+v\nbecame\n%+v %+v", h, m, gotH, got)
			}
			for cut := len("before"); cut < len(b); cut++ {
				if _, _, err := Decode(b[len("before"):cut]); err == nil || !errs.Is(err, errs.Invalid) {
					t.Fatalf("%v without its last %d bytes: %v", typ, len(b)-cut, err)
				}
			}
			if _, _, err := Decode(append(b[len("before"):], 0)); err == nil {
				t.Fatalf("%v with a byte behind its end is taken", typ)
			}
		}
	}
}

// TestAppendOnlyReads appends each message in two goroutines at once: the race detector finds what is written.
func TestAppendOnlyReads(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	for _, typ := range types() {
		for range 20 {
			m := blank(typ)
			fill(r, reflect.ValueOf(m).Elem(), 4)
			var both [2][]byte
			var run sync.WaitGroup
			for i := range both {
				run.Go(func() { both[i], _ = Append(nil, Header{}, m) })
			}
			if run.Wait(); len(both[0]) == 0 || !bytes.Equal(both[0], both[1]) {
				t.Errorf("%v: %d and %d bytes", typ, len(both[0]), len(both[1]))
			}
		}
	}
}

// TestLengthsAreTold: what a reply's parts take is known before it is put together.
func TestLengthsAreTold(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		var o OpenedItem
		fill(r, reflect.ValueOf(&o).Elem(), 9)
		if b, err := Append(nil, Header{}, &Opened{Items: []OpenedItem{o}}); err != nil || len(b) != HeaderSize+8+o.Length() {
			t.Fatalf("%+v: %d bytes, %v", o, len(b), err)
		}
		var l ListedItem
		fill(r, reflect.ValueOf(&l).Elem(), 9)
		if b, err := Append(nil, Header{}, &Listed{Items: []ListedItem{l}}); err != nil ||
			len(b) != HeaderSize+4+l.Length()+4+1+4 {
			t.Fatalf("%+v: %d bytes, %v", l, len(b), err)
		}
	}
}

// TestBounds: what is too long is neither written nor, however it comes, read, and nothing is allocated for it.
func TestBounds(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, m := range map[string]Message{
		"agent":      &Hello{Agent: long(MaxText + 1)},
		"access key": &Proof{AccessKey: long(MaxName + 1)},
		"objects":    &Open{Items: make([]OpenItem, MaxItems+1)},
		"key":        &Open{Items: []OpenItem{{Key: long(MaxName + 1)}}},
		"ranges":     &Move{Ranges: make([]Range, MaxRanges+1)},
		"sums":       &AddSums{Sums: make([]uint64, MaxSums+1)},
		"handles":    &Close{Handles: make([]uint64, MaxItems+1)},
		"reports":    &Close{Reports: make([]Report, MaxReports+1)},
		"metadata":   &Create{Metadata: make([]Pair, MaxMetadata+1)},
		"devices":    &Greeting{Devices: make([]uint32, MaxDevices+1)},
		"inline":     &Opened{Items: []OpenedItem{{Inline: make([]byte, MaxInline+1)}}},
		"the message": &Listed{Items: func() []ListedItem {
			l := make([]ListedItem, 200)
			for i := range l {
				l[i].Key = long(MaxName)
			}
			return l
		}()},
	} {
		if b, err := Append([]byte("kept"), Header{}, m); err == nil || !errs.Is(err, errs.Invalid) || string(b) != "kept" {
			t.Errorf("%s: %v, %d bytes", name, err, len(b))
		}
	}
	// A count that the packet cannot hold, at each place where one stands.
	for _, typ := range types() {
		whole, err := Append(nil, Header{Type: typ}, blank(typ))
		if err != nil {
			t.Fatal(err)
		}
		for i := HeaderSize; i+4 <= len(whole); i++ {
			b := bytes.Clone(whole)
			copy(b[i:], []byte{0xff, 0xff, 0xff, 0xff})
			if n := testing.AllocsPerRun(1, func() { _, _, _ = Decode(b) }); n > 20 {
				t.Errorf("%v with a count of 4 Gi at %d: %v allocations", typ, i, n)
			}
		}
	}
	if _, _, err := Decode(make([]byte, MaxMessage+1)); err == nil {
		t.Error("a packet beyond the bound is read")
	}
	for _, typ := range []Type{0, TypeError + 1, 255} {
		b := make([]byte, HeaderSize)
		b[0] = byte(typ)
		if _, _, err := Decode(b); err == nil || !strings.Contains(err.Error(), "version 4") {
			t.Errorf("%v: %v", typ, err)
		}
	}
	if b := []byte{byte(TypeOpened), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2}; true {
		if _, _, err := Decode(b); err == nil || !strings.Contains(err.Error(), "0 or 1") {
			t.Errorf("a truth value of 2: %v", err)
		}
	}
}

// TestMACsBindEverything: a proof is good for one challenge, one store, one key, one side and one version.
func TestMACsBindEverything(t *testing.T) {
	ch := Challenge{Version: 1, Store: "s", Nonce: [32]byte{1}}
	proof := Proof{AccessKey: "key", Nonce: [32]byte{2}, Binding: Binding{BindSocket, 7}}
	good := ClientMAC("secret", &ch, &proof)
	if !EqualMAC(good, ClientMAC("secret", &ch, &proof)) {
		t.Fatal("two of the same differ")
	}
	other := func(change func(c *Challenge, p *Proof)) [MACSize]byte {
		c, p := ch, proof
		change(&c, &p)
		return ClientMAC("secret", &c, &p)
	}
	for name, m := range map[string][MACSize]byte{
		"secret":         ClientMAC("Secret", &ch, &proof),
		"side":           ServerMAC("secret", &ch, &proof),
		"key":            other(func(c *Challenge, p *Proof) { p.AccessKey = "kez" }),
		"client's nonce": other(func(c *Challenge, p *Proof) { p.Nonce[0] = 3 }),
		"server's nonce": other(func(c *Challenge, p *Proof) { c.Nonce[31] = 1 }),
		"store":          other(func(c *Challenge, p *Proof) { c.Store = "t" }),
		"version":        other(func(c *Challenge, p *Proof) { c.Version++ }),
		"border":         other(func(c *Challenge, p *Proof) { c.Store, p.AccessKey = "sk", "ey" }),
		"binding":        other(func(c *Challenge, p *Proof) { p.Binding.Kind = BindProcess }),
		"end":            other(func(c *Challenge, p *Proof) { p.Binding.ID++ }),
	} {
		if EqualMAC(good, m) {
			t.Errorf("the MAC does not depend on the %s", name)
		}
	}
}

// TestCodesAreListedOnce: tables of counters are made from the list.
func TestCodesAreListedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Codes() {
		if seen[c] || c == "" {
			t.Errorf("%q is listed twice", c)
		}
		seen[c] = true
	}
}

// FuzzDecode: whatever comes is refused or understood, and what is understood is written as the same bytes again.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, typ := range types() {
		m := blank(typ)
		fill(r, reflect.ValueOf(m).Elem(), 3)
		b, err := Append(nil, Header{Type: typ, Request: 7}, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, m, err := Decode(b)
		if err != nil {
			if !errs.Is(err, errs.Invalid) {
				t.Fatalf("%v", err)
			}
			return
		}
		again, err := Append(nil, h, m)
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", m, err)
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("%+v: %x became %x", m, b, again)
		}
		if text := fmt.Sprintf("%v", h.Type); strings.HasPrefix(text, "type") {
			t.Fatalf("%s has no name", text)
		}
	})
}
