// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/binary"
	"testing"
)

func TestMountinfo(t *testing.T) {
	all := ParseMountinfo("22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n" +
		"30 22 0:60 / /my\\040data rw,noatime - nfs4 store:/models rw,proto=tcp,rsize=65536\n" +
		"31 22 0:61 / /my\\040data rw - xfs /dev/b rw\nbroken\n- - - - - - - x\n")
	if len(all) != 3 {
		t.Fatalf("%d mounts, want 3", len(all))
	}
	if v, ok := all[1].Value("rsize"); v != "65536" || !ok || all[1].Point != "/my data" || all[0].Has("errors") != true ||
		all[0].Has("data") {
		t.Errorf("got %+v", all[1])
	}
	for name, want := range map[string]string{"/my data/x": "xfs", "/my data": "xfs", "/my database": "ext4",
		"/": "ext4"} {
		if m := MountOf(all, name); m == nil || m.FSType != want {
			t.Errorf("%s is on %+v, want %s", name, m, want)
		}
	}
}

func TestCuFileComments(t *testing.T) {
	v, err := parseCuFile([]byte("// head\n{ \"a\": { \"b\": true }, // tail\n/* and\nmore */ \"url\": " +
		"\"http://x/*y*/\", \"q\": \"\\\"//\" }"))
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := lookup(v, "a.b"); b != true || v["url"] != "http://x/*y*/" || v["q"] != `"//` {
		t.Errorf("got %v", v)
	}
	if _, ok := lookup(v, "a.b.c"); ok {
		t.Error("found a name below a value")
	}
}

func TestParams(t *testing.T) {
	p := ParseParams("EnableMSI: 1\nRegistryDwords: \"RMForceStaticBar1=1;RmForceDisableIomapWC=1;\"\nno colon\n")
	if p["EnableMSI"] != "1" || p["RegistryDwords"] != "RMForceStaticBar1=1;RmForceDisableIomapWC=1;" || len(p) != 2 {
		t.Errorf("got %v", p)
	}
}

func TestLinkSpeeds(t *testing.T) {
	for text, want := range map[string]float64{"16.0 GT/s PCIe": 1.97, "8.0 GT/s": .985, "2.5 GT/s PCIe": .25,
		"32.0 GT/s PCIe": 3.94, "Unknown": 0, "": 0, "NaN GT/s": 0, "-8 GT/s": 0} {
		if got := laneRate(parseSpeed(text)); got != want {
			t.Errorf("%q: %v GB/s, want %v", text, got, want)
		}
	}
}

func TestVersions(t *testing.T) {
	for text, want := range map[string][3]int{"580.159.03": {580, 159, 3}, "6.8.0-45-generic": {6, 8, 0},
		"6.17": {6, 17, 0}, "x": {}, "": {}, "99999999999.1": {999999999}} {
		if got := ParseVersion(text); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
	if v := DriverVersion(
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"); v != "580.95.05" {
		t.Errorf("driver version %q", v)
	}
}

func TestAddresses(t *testing.T) {
	for s, want := range map[string]bool{"0000:3b:00.0": true, "10000:e1:00.7": true, "0000:3b:00.8": false,
		"a:$(x):b.0": false, "nvme0n1": false} {
		if IsBDF(s) != want {
			t.Errorf("IsBDF(%q) is %v", s, !want)
		}
	}
	if !SamePCI("00000000:3B:00.0", "0000:3b:00.0") || SamePCI("", "") {
		t.Error("addresses with domains of four and eight digits are compared wrongly")
	}
}

func TestConfigSpace(t *testing.T) {
	for ctl, want := range map[uint16]uint16{0: 0, 0x1d: 0x1c, 0x01: 0, 0x04: 4} {
		if got, ok := ACS(bridge(ctl)); got != want || !ok {
			t.Errorf("ACS control %#x: %#x, want %#x", ctl, got, want)
		}
	}
	if _, ok := ACS(make([]byte, 64)); ok {
		t.Error("a hidden configuration space was judged")
	}
	c := make([]byte, 256)
	c[0x34], c[0x40], c[0x44] = 0x40, 0x10, 1
	c[0x48], c[0x49] = 1<<5, 2<<4
	if can, set, read, ok := Payload(c); can != 256 || set != 256 || read != 512 || !ok {
		t.Errorf("payload %d of %d, read request %d, %v", set, can, read, ok)
	}
}

// bridge is a configuration space with an ACS capability set to ctl.
func bridge(ctl uint16) []byte {
	c := make([]byte, 4096)
	binary.LittleEndian.PutUint32(c[0x100:], 0x00010001|0x140<<20) // AER, next at 0x140
	binary.LittleEndian.PutUint32(c[0x140:], 0x0001000d)
	binary.LittleEndian.PutUint16(c[0x146:], ctl)
	return c
}
