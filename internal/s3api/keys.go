// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v3"
)

// versitygw refuses keys that would climb out of a directory, for keys are paths
// to some of its backends. Here they are names like any other, so such a key
// passes its router with a zero byte behind each "." and ".." that stands alone,
// and behind a key of slashes alone, and loses them again in the adapter.
const mark = "\x00"

// originalPath is where versitygw looks for the path that was signed.
const originalPath = "original-uri-path"

// disguise hides the key of a request from the router where it has to be.
func disguise(ctx fiber.Ctx) {
	raw := ctx.Request().URI().PathOriginal()
	if bytes.IndexByte(raw, '.') < 0 && bytes.IndexByte(raw, '%') < 0 && !bytes.HasSuffix(raw, []byte("//")) {
		return
	}
	path, err := url.PathUnescape(string(raw))
	if err != nil {
		return // the router refuses it
	}
	bucket, key, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !ok {
		return
	}
	if hidden := hide(key); hidden != key {
		if ctx.Locals(originalPath) == nil {
			ctx.Locals(originalPath, path)
		}
		ctx.Path("/" + url.PathEscape(bucket) + "/" + url.PathEscape(hidden))
	}
}

// hide marks what the router would refuse, and what is marked already.
func hide(key string) string {
	return remark(key, func(s string) string { return s + mark })
}

// reveal is the opposite of hide.
func reveal(key string) string {
	return remark(key, func(s string) string { return strings.TrimSuffix(s, mark) })
}

// remark changes the elements of a key that are dots alone, marked or not, and the end of one that is slashes alone.
func remark(key string, change func(string) string) string {
	if bare := strings.TrimRight(key, mark); bare != "" && strings.Trim(bare, "/") == "" {
		return change(key)
	}
	if !strings.Contains(key, ".") {
		return key
	}
	elems := strings.Split(key, "/")
	for i, e := range elems {
		if bare := strings.TrimRight(e, mark); bare == "." || bare == ".." {
			elems[i] = change(e)
		}
	}
	return strings.Join(elems, "/")
}
