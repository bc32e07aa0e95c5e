// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	signing "github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/signer"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/channel"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/iam"
)

// knock asks the door one thing at a time.
type knock struct {
	t        testing.TB
	c        *net.UnixConn
	seq      uint32
	buf, oob []byte
}

func (k *knock) ask(m wire.Message) (wire.Message, []*os.File) {
	k.t.Helper()
	k.seq++
	b, err := wire.Append(nil, wire.Header{Request: k.seq}, m)
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := k.c.Write(b); err != nil {
		k.t.Fatal(err)
	}
	n, oobn, _, _, err := k.c.ReadMsgUnix(k.buf, k.oob)
	if err != nil {
		k.t.Fatalf("%v: %v", m.Type(), err)
	}
	var files []*os.File
	cms, err := unix.ParseSocketControlMessage(k.oob[:oobn])
	if err != nil {
		k.t.Fatal(err)
	}
	for _, cm := range cms {
		fds, err := unix.ParseUnixRights(&cm)
		if err != nil {
			k.t.Fatal(err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed")) // closed by the caller, or when it is collected
		}
	}
	_, r, err := wire.Decode(k.buf[:n])
	if err != nil {
		k.t.Fatal(err)
	}
	return r, files
}

// enter connects and logs in.
func enter(t testing.TB, socket, store, key, secret string) *knock {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	k := &knock{t: t, c: c, buf: make([]byte, wire.MaxMessage), oob: make([]byte, unix.CmsgSpace(4*wire.MaxDescriptors))}
	r, _ := k.ask(&wire.Hello{Min: wire.MinVersion, Max: wire.Version})
	ch := r.(*wire.Challenge)
	if ch.Store != store {
		t.Errorf("store %q, discovery said %q", ch.Store, store)
	}
	p := &wire.Proof{AccessKey: key}
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { p.Binding, _ = channel.Peer(int(fd)) }) // without it the login fails, and the test
	}
	p.MAC = wire.ClientMAC(secret, ch, p)
	if r, _ = k.ask(p); r.Type() != wire.TypeGreeting {
		t.Fatalf("%+v", r)
	}
	return k
}

// TestTheDoorOfAServer goes through the whole of it: found through S3, entered with S3's keys, judged by S3's rules;
// what S3 wrote is read through it and what it wrote is read through S3; told by metrics and administration; and ended
// with the server.
func TestTheDoorOfAServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	run, err := os.MkdirTemp("", "door")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	socket := filepath.Join(run, "s")
	c := settings(t, map[string]string{"data": dir, "address": "127.0.0.1:0", "console_address": "127.0.0.1:0",
		"gpudirect.enabled": "true", "gpudirect.socket": socket, "gpudirect.device_ids": "0,1", "rdma.enabled": "true"})
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	log := &logged{}
	started, ended := make(chan Started, 1), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Config: c, Version: "test", Log: log, Started: func(s Started) { started <- s }})
	}()
	var info Started
	select {
	case info = <-started:
	case err := <-ended:
		t.Fatal(err)
	}
	if !info.GPUDirect.Enabled || info.GPUDirect.Socket != socket {
		t.Errorf("%+v", info.GPUDirect)
	}
	var found wire.Discovery
	askForDoor(t, info, &found)
	if !found.Enabled || found.Socket != socket || found.Store == "" || found.Version != 1 || found.Reason != "" {
		t.Errorf("%+v", found)
	}
	s3, err := minio.New(strings.TrimPrefix(info.Endpoint, "http://"),
		&minio.Options{Creds: signing.NewStaticV4(info.AccessKey, info.SecretKey, ""), Region: info.Region})
	if err != nil {
		t.Fatal(err)
	}
	content := strings.Repeat("0123456789abcdef", 200000)
	if err := s3.MakeBucket(ctx, "bucket", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s3.PutObject(ctx, "bucket", "big", strings.NewReader(content), int64(len(content)),
		minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}

	k := enter(t, socket, found.Store, info.AccessKey, info.SecretKey)
	host := wire.Device{Index: -1}
	r, files := k.ask(&wire.Open{Want: wire.WantBuffered | wire.WantSums, Device: host,
		Items: []wire.OpenItem{{Bucket: "bucket", Key: "big", N: -1}}})
	o := r.(*wire.Opened).Items[0]
	if o.Err != nil || len(files) != 1 || len(o.Sums) != 4 {
		t.Fatalf("%+v", o)
	}
	if got, err := io.ReadAll(files[0]); err != nil || string(got) != content {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if r, _ := k.ask(&wire.Open{Want: wire.WantBuffered, Device: wire.Device{Index: 2},
		Items: []wire.OpenItem{{Bucket: "bucket", Key: "big", N: -1}}}); r.Type() != wire.TypeError ||
		r.(*wire.Error).Code != wire.CodeDeviceNotAllowed {
		t.Errorf("%+v", r)
	}
	if r, _ := k.ask(&wire.List{Bucket: "bucket"}); len(r.(*wire.Listed).Items) != 1 {
		t.Errorf("%+v", r)
	}

	// A stranger's key is as good here as there: it is refused what S3 refuses it.
	admin, err := Administer(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if err := admin.AddUser(ctx, iam.Account{AccessKey: "stranger", Secret: "stranger-secret",
		Role: iam.RoleUser}); err != nil {
		t.Fatal(err)
	}
	other := enter(t, socket, found.Store, "stranger", "stranger-secret")
	r, _ = other.ask(&wire.Open{Want: wire.WantStat, Device: host,
		Items: []wire.OpenItem{{Bucket: "bucket", Key: "big", N: -1}}})
	if e := r.(*wire.Opened).Items[0].Err; e == nil || e.Code != wire.CodeAccessDenied {
		t.Errorf("%+v", r)
	}
	if err := admin.RemoveUser(ctx, "stranger"); err != nil {
		t.Fatal(err)
	}
	if r, _ := other.ask(&wire.Ping{}); r.Type() != wire.TypeError || r.(*wire.Error).Code != wire.CodeAccessDenied {
		t.Errorf("an account that is gone still has a connection: %+v", r)
	}

	d, err := admin.Door(ctx)
	if err != nil || !d.Served || d.Stats == nil || d.Stats.Logins != 2 || d.Stats.Handles != 1 ||
		d.Stats.HeldBytes != int64(len(content)) || len(d.Notes) != 1 || len(d.Settings.DeviceIDs) != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	if d.Writes {
		writeThrough(t, k, s3)
	} else if d.WritesReason == "" || d.WritesFix == "" {
		t.Errorf("writes are refused without a reason: %+v", d)
	}
	text := getText(t, info.Console+"/metrics")
	for _, want := range []string{"nebulaio_gpudirect_served 1", "nebulaio_gpudirect_logins_total 2",
		"nebulaio_gpudirect_handles 1", `nebulaio_gpudirect_refusals_total{code="DeviceNotAllowed"} 1`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}

	_ = k.c.Close() // else the drain waits for what it holds
	stop(errors.New("enough"))
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	for _, want := range []string{`"component":"gpudirect"`, `"msg":"client logged in"`, `"access_key":"stranger"`,
		`"uid":`, "no RDMA transport"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in the log:\n%s", want, log)
		}
	}
}

// writeThrough writes an object through the door and reads it over S3.
func writeThrough(t *testing.T, k *knock, s3 *minio.Client) {
	t.Helper()
	r, files := k.ask(&wire.Create{Bucket: "bucket", Key: "made", Size: 1000, Device: wire.Device{Index: -1},
		Want: wire.WantBuffered, ContentType: "text/x", Metadata: []wire.Pair{{Name: "step", Value: "7"}}})
	made, ok := r.(*wire.Created)
	if !ok {
		t.Fatalf("%+v", r)
	}
	data := strings.Repeat("y", 777)
	if _, err := files[0].WriteAt([]byte(data), 0); err != nil {
		t.Fatal(err)
	}
	sum := checksum.Of([]byte(data))
	commit := &wire.Commit{Handle: made.Handle, Size: 777, CRC64: sum, Sums: []uint64{sum}}
	if r, _ := k.ask(commit); r.Type() != wire.TypeError || r.(*wire.Error).Code != wire.CodeWriterLeft {
		t.Fatalf("%+v", r)
	}
	_ = files[0].Close()
	if r, _ := k.ask(commit); r.Type() != wire.TypeCommitted {
		t.Fatalf("%+v", r)
	}
	o, err := s3.GetObject(t.Context(), "bucket", "made", minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	got, err := io.ReadAll(o)
	st, _ := o.Stat()
	if err != nil || string(got) != data || st.ContentType != "text/x" || st.UserMetadata["Step"] != "7" {
		t.Errorf("%d bytes, %v, %+v", len(got), err, st)
	}
}

// TestWithoutADoor: clients hear that there is none, and why.
func TestWithoutADoor(t *testing.T) {
	c := settings(t, map[string]string{"data": filepath.Join(t.TempDir(), "store"), "address": "127.0.0.1:0",
		"console_address": "127.0.0.1:0"})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if d, running, err := LookAtDoor(ctx, c); err != nil || running || d.Served ||
		!strings.Contains(d.Reason, "no server runs") || d.Fix == "" {
		t.Errorf("%+v, %v, %v", d, running, err)
	}
	started, ended := make(chan Started, 1), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Config: c, Version: "test", Log: io.Discard, Started: func(s Started) { started <- s }})
	}()
	var info Started
	select {
	case info = <-started:
	case err := <-ended:
		t.Fatal(err)
	}
	var found wire.Discovery
	askForDoor(t, info, &found)
	if found.Enabled || found.Socket != "" || found.Store == "" ||
		!strings.Contains(found.Reason, "gpudirect.enabled is false") || found.Fix == "" {
		t.Errorf("%+v", found)
	}
	if info.GPUDirect.Enabled || info.GPUDirect.Reason == "" {
		t.Errorf("%+v", info.GPUDirect)
	}
	if d, running, err := LookAtDoor(ctx, c); err != nil || !running || d.Served || d.Stats != nil || d.Store == "" {
		t.Errorf("%+v, %v, %v", d, running, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestADoorThatCannotOpen ends the start with the setting to change, and leaves everything free for the next one.
func TestADoorThatCannotOpen(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	c := settings(t, map[string]string{"data": long, "address": "127.0.0.1:0", "console_address": "127.0.0.1:0",
		"gpudirect.enabled": "true"})
	for range 2 {
		err := Run(t.Context(), Options{Config: c, Version: "test", Log: io.Discard})
		if err == nil || !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "gpudirect.socket") {
			t.Errorf("%v", err)
		}
	}
}

// TestTheDoorAndTheAdministrationAreTwo: the later one would take the other's name, and nobody would know.
func TestTheDoorAndTheAdministrationAreTwo(t *testing.T) {
	dir := shortDir(t)
	c := settings(t, map[string]string{"data": dir, "address": "127.0.0.1:0", "console_address": "127.0.0.1:0",
		"gpudirect.enabled": "true",
		"gpudirect.socket":  filepath.Join(dir, adminSocket)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := Run(ctx, Options{Config: c, Version: "test", Log: io.Discard, Started: func(Started) { cancel() }})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "gpudirect.socket") {
		t.Errorf("%v", err)
	}
}

// TestAServerThatCannotBeAskedIsNotTakenForNone.
func TestAServerThatCannotBeAskedIsNotTakenForNone(t *testing.T) {
	dir := shortDir(t)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, adminSocket), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := settings(t, map[string]string{"data": dir})
	if d, running, err := LookAtDoor(t.Context(), c); err == nil || errs.FixOf(err) == "" {
		t.Errorf("%+v, %v, %v", d, running, err)
	}
}

// shortDir is a directory whose sockets have short names.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestGPUsAreCountedAsTheBusDoes, which is how nvidia-smi counts and the settings mean it.
func TestGPUsAreCountedAsTheBusDoes(t *testing.T) {
	order := gpuOrder([]device.Info{
		{Kind: device.CUDA, UUID: "GPU-b", PCI: "0000:A0:00.0"}, {Kind: device.CUDA, UUID: "GPU-a", PCI: "0000:1b:00.0"},
		{Kind: device.CUDA, PCI: "0000:00:00.0"}, {Kind: device.Host},
	})
	if len(order) != 2 || order["GPU-a"] != 1 || order["GPU-b"] != 2 {
		t.Errorf("%v", order)
	}
}

// askForDoor asks a server for its door, as an account of it.
func askForDoor(t testing.TB, info Started, into any) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, info.Endpoint+"/.nebulaio/gpudirect", nil)
	if err != nil {
		t.Fatal(err)
	}
	empty := sha256.Sum256(nil)
	req.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(empty[:]))
	resp, err := http.DefaultClient.Do(signer.SignV4(*req, info.AccessKey, info.SecretKey, "", info.Region))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %s", err, resp.Status)
	}
}

func getText(t testing.TB, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %s", url, err, resp.Status)
	}
	return string(text)
}

// BenchmarkDoor4KiB is one round trip for a small object through the door of a whole server, from a client in the same
// process.
func BenchmarkDoor4KiB(b *testing.B) {
	run, err := os.MkdirTemp("", "door")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(run) })
	socket := filepath.Join(run, "s")
	c := settings(b, map[string]string{"data": filepath.Join(b.TempDir(), "store"), "address": "127.0.0.1:0",
		"console_address": "127.0.0.1:0", "gpudirect.enabled": "true", "gpudirect.socket": socket})
	ctx, stop := context.WithCancel(b.Context())
	started, ended := make(chan Started, 1), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Config: c, Version: "test", Log: io.Discard, Started: func(s Started) { started <- s }})
	}()
	info := <-started
	s3, err := minio.New(strings.TrimPrefix(info.Endpoint, "http://"),
		&minio.Options{Creds: signing.NewStaticV4(info.AccessKey, info.SecretKey, ""), Region: info.Region})
	if err != nil {
		b.Fatal(err)
	}
	if err := s3.MakeBucket(ctx, "bucket", minio.MakeBucketOptions{}); err != nil {
		b.Fatal(err)
	}
	for key, n := range map[string]int{"4KiB": 4096, "1MiB": 1 << 20} {
		if _, err := s3.PutObject(ctx, "bucket", key, strings.NewReader(strings.Repeat("x", n)), int64(n),
			minio.PutObjectOptions{}); err != nil {
			b.Fatal(err)
		}
		b.Run(key, func(b *testing.B) {
			var found wire.Discovery
			askForDoor(b, info, &found)
			k := enter(b, socket, found.Store, info.AccessKey, info.SecretKey)
			for b.Loop() {
				r, files := k.ask(&wire.Open{Want: wire.WantInline | wire.WantBuffered | wire.WantSums,
					Device: wire.Device{Index: -1}, Items: []wire.OpenItem{{Bucket: "bucket", Key: key, N: -1}}})
				o := &r.(*wire.Opened).Items[0]
				if o.Err != nil {
					b.Fatalf("%+v", o.Err)
				}
				for _, f := range files {
					_ = f.Close()
				}
				if o.Handle != 0 {
					k.ask(&wire.Close{Handles: []uint64{o.Handle}})
				}
			}
		})
	}
	stop()
	<-ended
}
