// SPDX-License-Identifier: Apache-2.0

package report

import "testing"

func TestServedTellsTheFarthestSource(t *testing.T) {
	var s Served
	s.Add(nil)
	if s != (Served{}) {
		t.Errorf("%+v", s)
	}
	for _, o := range []Served{{"hit", 3, "md5"}, {"upstream", 0, "md5"}, {"peer", 7, "md5"}} {
		s.Add(&o)
	}
	if s != (Served{"upstream", 7, "md5"}) {
		t.Errorf("%+v", s)
	}
	s.Add(&Served{"hit", 1, "crc64nvme"})
	if s != (Served{"upstream", 7, "length+etag"}) {
		t.Errorf("%+v", s)
	}
}
