// SPDX-License-Identifier: Apache-2.0

package report

// Served tells how a server got the bytes of objects that another S3 server keeps.
type Served struct {
	// From is "hit" if the bytes were on the server's disk, and "stale" if the other S3 server did not answer besides.
	// From is "peer" if another node of the cluster sent bytes, and "upstream" if the other S3 server sent bytes. If the
	// bytes of a transfer came from several sources, From is the last of them in this order.
	From string `json:"from"`
	// AgeSeconds is the number of seconds since the server last asked the other S3 server about the object. For several
	// objects, AgeSeconds is the largest number.
	AgeSeconds int64 `json:"age_seconds"`
	// Verified tells how the server compared the whole content: "crc64nvme", "crc32c", "md5" or "length+etag". A server
	// that is still fetching the content says "length+etag". If objects were compared in different ways, Verified is
	// "length+etag".
	Verified string `json:"verified"`
}

// Add includes the bytes that o describes. Add does nothing if o is nil.
func (s *Served) Add(o *Served) {
	switch {
	case o == nil:
		return
	case s.From == "":
		*s = *o
		return
	}
	if distance(o.From) > distance(s.From) {
		s.From = o.From
	}
	if s.AgeSeconds = max(s.AgeSeconds, o.AgeSeconds); s.Verified != o.Verified {
		s.Verified = "length+etag"
	}
}

// distance orders the values of Served.From.
func distance(from string) int {
	for i, name := range []string{"hit", "stale", "peer", "upstream"} {
		if name == from {
			return i
		}
	}
	return -1
}
