// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"net"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/nebulaio/nebulaio/internal/object"
)

// hostedKey is the user value that holds the bucket from a request's host name, for mendLocation.
const hostedKey = "nebulaio-hosted"

// bucketOfHost returns the bucket in a Host header such as "bucket.s3.example.com:9000", or "".
//
// The port does not matter. A host that is itself a domain names no bucket, even if it is below another domain.
// Otherwise the longest matching domain decides.
func bucketOfHost(host string, domains []string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	best := ""
	for _, d := range domains {
		if host == d {
			return ""
		}
		if len(d) > len(best) && strings.HasSuffix(host, "."+d) {
			best = d
		}
	}
	if best == "" {
		return ""
	}
	return strings.TrimSuffix(host, "."+best)
}

// directoryOfHost returns the directory bucket at the beginning of a Host header, or "". SDKs address a directory
// bucket as BUCKET.HOST even if they are told to use paths. No other host name begins with the name of a directory
// bucket.
func directoryOfHost(host string) string {
	name, _, ok := strings.Cut(strings.ToLower(host), ".")
	if !ok || !object.IsDirectory(name) {
		return ""
	}
	return name
}

// rewriteHost turns a virtual-hosted request into a path-style request, before anything else reads its path. The
// signature covers the original path, which versitygw finds under originalPath.
func (s *Server) rewriteHost(ctx *fasthttp.RequestCtx) {
	if len(s.opts.Domains) == 0 && s.opts.Express == nil {
		return
	}
	host := string(ctx.Request.Header.Host())
	bucket := bucketOfHost(host, s.opts.Domains)
	if bucket == "" && s.opts.Express != nil {
		bucket = directoryOfHost(host)
	}
	if bucket == "" {
		return
	}
	uri := ctx.Request.URI()
	path := string(uri.PathOriginal())
	signed, err := url.PathUnescape(path)
	if err != nil {
		signed = path // the guard refuses the path
	}
	ctx.SetUserValue(originalPath, signed)
	ctx.SetUserValue(hostedKey, bucket)
	if path == "/" {
		path = "" // the bucket itself
	}
	uri.SetPath("/" + bucket + path)
}

// mendLocation removes the bucket from the path of a Location header if the host name contains the bucket.
func mendLocation(ctx *fasthttp.RequestCtx) {
	bucket, ok := ctx.UserValue(hostedKey).(string)
	if !ok || !ctx.IsPost() || ctx.Response.StatusCode() >= 300 {
		return
	}
	host := "://" + string(ctx.Request.Header.Host()) + "/"
	long, short := []byte(host+bucket+"/"), []byte(host)
	if at := ctx.Response.Header.Peek("Location"); len(at) > 0 {
		ctx.Response.Header.SetBytesV("Location", bytes.Replace(at, long, short, 1))
	}
	if body := ctx.Response.Body(); bytes.Contains(body, long) {
		ctx.Response.SetBody(bytes.Replace(bytes.Clone(body), long, short, 1))
	}
}
