// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/nearest"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Largest length of a text in bytes, and largest number of items of a list or map.
const (
	maxText  = 4096
	maxItems = 1024
)

// set parses text, which comes from a flag, a variable or the file, and stores the value in the Config. complaint
// says what is wrong with the text, and is empty if set stored the value.
func (f field) set(c *Config, text string) (complaint string) {
	if len(text) > maxText*8 {
		return fmt.Sprintf("has %d bytes; expected %d at most", len(text), maxText*8)
	}
	switch f.Type {
	case List:
		return f.setList(c, split(text))
	case Map:
		m := map[string]string{}
		for _, item := range split(text) {
			name, value, ok := strings.Cut(item, "=")
			if !ok {
				return fmt.Sprintf("has the item %q; expected NAME=VALUE,NAME=VALUE", item)
			}
			name = strings.TrimSpace(name)
			if _, twice := m[name]; twice {
				return fmt.Sprintf("names %q twice", name)
			}
			m[name] = strings.TrimSpace(value)
		}
		return f.setMap(c, m)
	}
	switch dst := f.bind(c).(type) {
	case *string:
		if why := f.checkText(text); why != "" {
			return why
		}
		*dst = text
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil || text != "true" && text != "false" {
			return "is not accepted; expected true or false"
		}
		*dst = b
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil || int64(n) < f.Min || int64(n) > f.Max {
			return fmt.Sprintf("is not accepted; expected a whole number from %d to %d", f.Min, f.Max)
		}
		*dst = n
	case *int64:
		n, err := units.ParseBytes(text)
		if err != nil {
			return message(err)
		}
		if n < f.Min || n > f.Max {
			return fmt.Sprintf("is out of range; expected %s to %s", sizeText(f.Min), sizeText(f.Max))
		}
		*dst = n
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return "is not a duration; expected a number with a unit, such as 500ms, 30s, 5m or 12h"
		}
		if int64(d) < f.Min || int64(d) > f.Max {
			return fmt.Sprintf("is out of range; expected %s to %s", durationText(time.Duration(f.Min)),
				durationText(time.Duration(f.Max)))
		}
		*dst = d
	}
	return ""
}

func (f field) setList(c *Config, items []string) (complaint string) {
	if len(items) > maxItems {
		return fmt.Sprintf("has %d items; expected %d at most", len(items), maxItems)
	}
	for _, item := range items {
		if f.check != nil {
			if why := f.check(item); why != "" {
				return fmt.Sprintf("has the item %q, which %s", item, why)
			}
		}
	}
	*f.bind(c).(*[]string) = items
	return ""
}

func (f field) setMap(c *Config, m map[string]string) (complaint string) {
	if len(m) > maxItems {
		return fmt.Sprintf("has %d items; expected %d at most", len(m), maxItems)
	}
	for _, name := range sorted(m) {
		if f.check != nil {
			if why := f.check(name); why != "" {
				return fmt.Sprintf("has the name %q, which %s", name, why)
			}
		}
		if len(f.Choices) > 0 && !slices.Contains(f.Choices, m[name]) {
			return fmt.Sprintf("has %q for %q; expected %s", m[name], name, oneOf(f.Choices)) + nearest.Hint(m[name],
				f.Choices...)
		}
	}
	*f.bind(c).(*map[string]string) = m
	return ""
}

func (f field) checkText(text string) string {
	switch {
	case len(text) > maxText:
		return fmt.Sprintf("has %d bytes; expected %d at most", len(text), maxText)
	case strings.ContainsAny(text, "\x00\r\n"):
		return "has a line break or a zero byte in it; expected one line of text"
	case len(f.Choices) > 0 && !slices.Contains(f.Choices, text):
		return "is not accepted; expected " + oneOf(f.Choices) + nearest.Hint(text, f.Choices...)
	case f.check != nil:
		return f.check(text)
	}
	return ""
}

// render returns a value as a user would write it in the environment.
func render(v any) string {
	switch v := v.(type) {
	case *string:
		return *v
	case *bool:
		return strconv.FormatBool(*v)
	case *int:
		return strconv.Itoa(*v)
	case *int64:
		return sizeText(*v)
	case *time.Duration:
		return durationText(*v)
	case *[]string:
		return strings.Join(*v, ",")
	case *map[string]string:
		var items []string
		for _, name := range sorted(*v) {
			items = append(items, name+"="+(*v)[name])
		}
		return strings.Join(items, ",")
	}
	return ""
}

// sizeText returns a size as text that parses to the same size.
func sizeText(n int64) string {
	for _, u := range []struct {
		n    int64
		name string
	}{{gib, "GiB"}, {mib, "MiB"}, {kib, "KiB"}} {
		if n >= u.n && n%u.n == 0 {
			return strconv.FormatInt(n/u.n, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// durationText returns a duration without units that are zero: 2m, not 2m0s.
func durationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func split(text string) []string {
	items := []string{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func sorted(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func oneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

func message(err error) string {
	var e *errs.Error
	if errors.As(err, &e) && e.Msg != "" {
		return e.Msg
	}
	return err.Error()
}

func notEmpty(s string) string {
	if s == "" {
		return "is empty; expected a directory"
	}
	return ""
}

func hostPort(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "is no address; expected HOST:PORT, such as 127.0.0.1:9000, [::1]:9000 or :9000"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 || port[0] == '+' {
		return fmt.Sprintf("has the port %q; expected a number from 0 to 65535", port)
	}
	if strings.ContainsAny(host, " /@") {
		return fmt.Sprintf("has the host %q; expected a name or an IP address", host)
	}
	return ""
}

func region(s string) string {
	if s == "" || len(s) > 64 || strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) {
		return "is no region; expected 1 to 64 letters, digits and dashes, such as us-east-1"
	}
	return ""
}

// accessKey and secretKey refuse the same keys as package iam, so that the server can start with every checked
// configuration.
func accessKey(s string) string {
	if s != "" && (len(s) < 3 || len(s) > 128 || strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._@+-", r)
	})) {
		return "is no access key; expected 3 to 128 letters, digits and ._@+-"
	}
	return ""
}

func secretKey(s string) string {
	switch {
	case s == "":
	case len(s) < 8 || len(s) > 256:
		return fmt.Sprintf("has %d characters; expected 8 to 256", len(s))
	case strings.ContainsFunc(s, func(r rune) bool { return r < '!' || r > '~' }):
		return "has a space or a character that is not ASCII; expected letters, digits and signs alone"
	}
	return ""
}

func pattern(s string) string {
	if _, err := path.Match(s, ""); err != nil || s == "" {
		return "is no pattern; expected letters with * and ?, such as train-*"
	}
	return ""
}

func hostName(s string) string {
	if len(s) > 253 || strings.ContainsAny(s, " /@,") {
		return "is no host; expected a name or an IP address"
	}
	return ""
}

// domainName checks a host name that is used as BUCKET.DOMAIN.
func domainName(s string) string {
	const expected = "expected a host name in lower case without a port, such as s3.example.com"
	if len(s) > 189 { // with a bucket of 63 bytes and a dot it is 253, the longest host name
		return fmt.Sprintf("has %d bytes; a domain of buckets may have 189", len(s))
	}
	if net.ParseIP(s) != nil {
		return "is an IP address; " + expected
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.ContainsFunc(label, func(r rune) bool {
				return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-')
			}) {
			return "is no domain; " + expected
		}
	}
	return ""
}

func socketPath(s string) string {
	switch {
	case s == "":
	case !path.IsAbs(s):
		return "is no absolute path; expected one such as /run/nebulaio/gpudirect.sock"
	case len(s) > 107:
		return fmt.Sprintf("has %d bytes; a Unix socket's name may have 107", len(s))
	}
	return ""
}

func deviceIndex(s string) string {
	if n, err := strconv.Atoi(s); err != nil || n < 0 || n > 63 || strconv.Itoa(n) != s {
		return "is no index of a GPU; expected a number from 0 to 63"
	}
	return ""
}
