// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/metrics"
	"github.com/versity/versitygw/s3api/controllers"
)

// TestFailuresAreLoggedAndNotPrinted makes requests that versitygw fails for reasons that S3 has no code for. The cause
// must be a line of our log. versitygw itself prints the cause to standard error, between the lines of the log.
func TestFailuresAreLoggedAndNotPrinted(t *testing.T) {
	r, printed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	was := os.Stderr
	os.Stderr = printed
	defer func() { os.Stderr = was }()
	w := start(t, nil, nil)
	w.people("alice")
	// An account that does not exist is an error of versitygw's, and no error of S3's.
	owner := []string{"x-amz-object-ownership", "BucketOwnerPreferred"}
	for _, grant := range []string{"x-amz-grant-read", "x-amz-grant-write"} {
		if r := w.as("alice", 400, "PUT", "/third", "", append(owner, grant,
			"id=mallory")...); r.code() != "InvalidArgument" {
			t.Errorf("%s: %s", grant, r.body)
		}
	}
	// A controller fails with a cause that nobody has foreseen.
	rctx := &fasthttp.RequestCtx{}
	rctx.Init(&fasthttp.Request{}, &net.TCPAddr{}, nil)
	ctx := w.server.authorizer.app.AcquireCtx(rctx)
	rctx.SetUserValue(requestKey, ctx)
	failing := controllers.ProcessHandlers(func(fiber.Ctx) (*controllers.Response, error) {
		return &controllers.Response{}, errors.New("the cause")
	}, metrics.ActionGetObject, &controllers.Services{MetricsManager: operations{}})
	answered := func() (err error) {
		defer w.server.catch(ctx, &err)
		return failing(ctx)
	}()
	if answered != nil || rctx.Response.StatusCode() != 500 ||
		!strings.Contains(string(rctx.Response.Body()), "InternalError") {
		t.Errorf("%v %d %s", answered, rctx.Response.StatusCode(), rctx.Response.Body())
	}
	if text := w.log.String(); strings.Count(text, "the cause") != 1 || !strings.Contains(text, "operation=GetObject") {
		t.Errorf("the log has %q", text)
	}
	_ = printed.Close() // the reader sees the end
	if text, err := io.ReadAll(r); err != nil || len(text) > 0 {
		t.Errorf("printed %q (%v)", text, err)
	}
}
