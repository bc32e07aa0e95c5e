// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/plain"
)

// Limits of the memory that one reply can take.
const (
	mostDocument = 8 << 20
	mostEntries  = 1000
	mostDepth    = 32
	mostReply    = 64 << 10
)

// decode reads an XML document with the given root into x. It refuses documents that are nested deeply, because the
// decoder of the library recurses.
func decode(doc []byte, root string, x any) error {
	d := xml.NewDecoder(bytes.NewReader(doc))
	depth, first := 0, true
	for {
		t, err := d.RawToken()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("the reply is no XML: %s", plain.Text(err.Error()))
		}
		switch e := t.(type) {
		case xml.StartElement:
			if first && stem(e.Name.Local) != stem(root) {
				return fmt.Errorf("the reply is %.64q, expected %s", e.Name.Local, root)
			}
			first = false
			if depth++; depth > mostDepth {
				return fmt.Errorf("the reply is nested more than %d deep", mostDepth)
			}
		case xml.EndElement:
			depth--
		}
	}
	if first {
		return fmt.Errorf("the reply is empty, expected %s", root)
	}
	if err := xml.Unmarshal(doc, x); err != nil {
		return fmt.Errorf("the reply is no %s: %s", root, plain.Text(err.Error()))
	}
	return nil
}

// stem returns the part of a root's name that all servers agree on. Servers differ in the case of letters, and in the
// word at the end.
func stem(root string) string {
	s := strings.ToLower(root)
	for _, end := range []string{"result", "response", "output"} {
		s = strings.TrimSuffix(s, end)
	}
	if s == "getbucketversioning" {
		s = "versioningconfiguration"
	}
	return s
}

// plainer decodes the names of a listing, which may be URL-encoded.
type plainer bool

func (p plainer) text(s string) (string, error) {
	if !p {
		return s, nil
	}
	return url.QueryUnescape(s)
}

func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

// sumFields are the checksums in documents of S3.
type sumFields struct {
	ChecksumCRC32     string `xml:",omitempty"`
	ChecksumCRC32C    string `xml:",omitempty"`
	ChecksumCRC64NVME string `xml:",omitempty"`
	ChecksumSHA1      string `xml:",omitempty"`
	ChecksumSHA256    string `xml:",omitempty"`
}

// of returns the field of an algorithm; nil if documents have none.
func (s *sumFields) of(algorithm string) *string {
	switch algorithm {
	case "CRC32":
		return &s.ChecksumCRC32
	case "CRC32C":
		return &s.ChecksumCRC32C
	case "CRC64NVME":
		return &s.ChecksumCRC64NVME
	case "SHA1":
		return &s.ChecksumSHA1
	case "SHA256":
		return &s.ChecksumSHA256
	}
	return nil
}
