// SPDX-License-Identifier: Apache-2.0

package ktls

import (
	"bytes"
	"crypto/aes"
	gcm "crypto/cipher"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/store/sendfile"
)

// The keys of the server in the first example of RFC 8448.
func TestKeysOfTheStandard(t *testing.T) {
	secret, _ := hex.DecodeString("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643")
	c, ok := cipherOf(tls.TLS_AES_128_GCM_SHA256)
	if !ok {
		t.Fatal("no cipher")
	}
	k, err := newKeys(c, secret)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(k.key) + " " +
		hex.EncodeToString(k.iv); got != "9f02283b6c9c07efc26bb9f2ac92e356 cf782b88dd83549aadf1e984" {
		t.Errorf("key and iv are %s", got)
	}
	const want = "0403" + "3300" + "dd83549aadf1e984" + "9f02283b6c9c07efc26bb9f2ac92e356" + "cf782b88" +
		"0000000000000000"
	if got := hex.EncodeToString(k.info()); got != want {
		t.Errorf("the kernel gets %s, expected %s", got, want)
	}
	k.forget()
	if !bytes.Equal(append(k.key, k.iv...), make([]byte, 28)) {
		t.Error("the keys are not forgotten")
	}
}

func TestSecretsOfTheLog(t *testing.T) {
	var l secretLog
	for _, line := range []string{"CLIENT_TRAFFIC_SECRET_0 aa bb\n", "SERVER_TRAFFIC_SECRET_0 aa 0102\n",
		"EXPORTER_SECRET aa cc\n"} {
		if _, err := l.Write([]byte(line)); err != nil {
			t.Error(err)
		}
	}
	if hex.EncodeToString(l.secret) != "0102" {
		t.Errorf("the secret is %x", l.secret)
	}
	for _, line := range []string{"SERVER_TRAFFIC_SECRET_0 aa\n", "SERVER_TRAFFIC_SECRET_0 aa x\n",
		"SERVER_TRAFFIC_SECRET_0 \n"} {
		if _, err := new(secretLog).Write([]byte(line)); err == nil {
			t.Errorf("%q has a secret", line)
		}
	}
}

// softSocket does the kernel's part in the program, as RFC 8446 describes it. It notes what goes over the wire.
type softSocket struct {
	*net.TCPConn
	aead  gcm.AEAD
	iv    []byte
	seq   uint64
	noted *atomic.Pointer[[]byte]
}

func (s *softSocket) arm(k *keys) {
	block, err := aes.NewCipher(k.key)
	if err != nil {
		panic(err)
	}
	if s.aead, err = gcm.NewGCM(block); err != nil {
		panic(err)
	}
	s.iv = bytes.Clone(k.iv)
}

func (s *softSocket) Write(p []byte) (int, error) {
	if s.aead == nil {
		seen := append(bytes.Clone(*s.noted.Load()), p...)
		s.noted.Store(&seen)
		return s.TCPConn.Write(p)
	}
	for n := 0; n < len(p); {
		some := p[n:min(n+record, len(p))]
		head := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(some)+1+s.aead.Overhead()))
		nonce := bytes.Clone(s.iv)
		for i := range 8 {
			nonce[4+i] ^= byte(s.seq >> (56 - 8*i))
		}
		s.seq++
		if _, err := s.TCPConn.Write(s.aead.Seal(head, nonce, append(bytes.Clone(some), 23), head)); err != nil {
			return n, err
		}
		n += len(some)
	}
	return len(p), nil
}

// SyscallConn fails, because bytes that sendfile would send are not encrypted here.
func (s *softSocket) SyscallConn() (syscall.RawConn, error) { return nil, errors.ErrUnsupported }

func (s *softSocket) ReadFrom(r io.Reader) (int64, error) { return io.Copy(writerOnly{s}, r) }

func certify(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"here"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// softListener accepts softSockets.
type softListener struct {
	net.Listener
	noted *atomic.Pointer[[]byte]
}

func (l softListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &softSocket{TCPConn: c.(*net.TCPConn), noted: l.noted}, nil
}

// pair is a server's and a client's end of one connection.
type pair struct {
	server *Conn
	client *tls.Conn
	counts *Counts
	wire   *atomic.Pointer[[]byte] // what a softSocket has sent before it encrypts
}

// connect makes a connection. soft replaces the kernel by softSockets.
func connect(t *testing.T, kernel, soft bool, change func(client *tls.Config)) pair {
	t.Helper()
	below, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := pair{counts: &Counts{}, wire: &atomic.Pointer[[]byte]{}}
	p.wire.Store(&[]byte{})
	var l net.Listener = below
	if soft {
		l = softListener{below, p.wire}
	}
	l = Listener(l, &tls.Config{Certificates: []tls.Certificate{certify(t)}, MinVersion: tls.VersionTLS12}, kernel,
		p.counts)
	if soft {
		l.(*listener).enable = func(s Socket, k *keys) error { s.(*softSocket).arm(k); return nil }
	}
	conf := &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(4), ServerName: "here"}
	if change != nil {
		change(conf)
	}
	dialled := make(chan error, 1)
	go func() {
		c, err := tls.Dial("tcp", below.Addr().String(), conf)
		p.client = c
		dialled <- err
	}()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p.server = c.(*Conn)
	if err := p.server.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-dialled; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = p.client.Close(), p.server.Close(), below.Close() })
	return p
}

// exchange sends bytes both ways, the server's by Write and from a file, and checks how the connection ends.
func (p pair) exchange(t *testing.T, kernel bool) {
	t.Helper()
	data := make([]byte, 600<<10+123)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	copy(data, "plain text that nobody may see on the wire")
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if p.server.InKernel() != kernel {
		t.Fatalf("in the kernel: %v, expected %v", p.server.InKernel(), kernel)
	}
	sent := make(chan error, 1)
	go func() {
		sent <- func() error {
			if _, err := p.client.Write([]byte("a request")); err != nil {
				return err
			}
			got := make([]byte, 9)
			if _, err := io.ReadFull(p.server, got); err != nil || string(got) != "a request" {
				return errors.Join(errors.New("the server has read "+string(got)), err)
			}
			for _, part := range [][]byte{data[:1], data[1:5000], data[5000:]} {
				if _, err := p.server.Write(part); err != nil {
					return err
				}
			}
			off := int64(0)
			done, err := sendfile.Send(p.server, int(f.Fd()), &off, int64(len(data)))
			if err != nil {
				return err
			}
			if done && !p.server.InKernel() {
				return errors.New("sendfile has sent plain text")
			}
			if !done {
				if _, err := p.server.ReadFrom(f); err != nil {
					return err
				}
			}
			return p.server.Close()
		}()
	}()
	got, err := io.ReadAll(p.client) // io.ErrUnexpectedEOF without close_notify
	if e := <-sent; e != nil {
		t.Fatal(e)
	}
	if err != nil && !(p.server.records.kernel.Load() && isSoft(p.server)) {
		t.Errorf("the connection ended with %v", err)
	}
	if want := append(bytes.Clone(data), data...); !bytes.Equal(got, want) {
		t.Errorf("%d bytes arrived, expected %d", len(got), len(want))
	}
	if bytes.Contains(*p.wire.Load(), []byte("plain text")) {
		t.Error("plain text went over the wire")
	}
	in, out := p.counts.KernelBytes.Load(), p.counts.ProgramBytes.Load()
	if !kernel {
		in, out = out, in
	}
	if want := int64(len(data)); in < want || in > 2*want || out != 0 {
		t.Errorf("counted %d bytes where they went, and %d elsewhere", in, out)
	}
}

func isSoft(c *Conn) bool { _, ok := c.socket.(*softSocket); return ok }

// The keys that the kernel would get encrypt what a client can read, from record number 0 on.
func TestTheKeysFitTheConnection(t *testing.T) {
	p := connect(t, true, true, nil)
	p.exchange(t, true)
	if p.counts.KernelConns.Load() != 1 || p.counts.ProgramConns.Load() != 0 {
		t.Errorf("%d connections in the kernel, %d in the program", p.counts.KernelConns.Load(), p.counts.ProgramConns.Load())
	}
}

// What the kernel is not given stays in crypto/tls and is never sent as plain text.
func TestConnectionsOfTheProgram(t *testing.T) {
	t.Run("off", func(t *testing.T) { connect(t, false, true, nil).exchange(t, false) })
	t.Run("off, on a socket", func(t *testing.T) { connect(t, false, false, nil).exchange(t, false) })
	t.Run("TLS 1.2", func(t *testing.T) {
		connect(t, true, true, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }).exchange(t, false)
	})
	t.Run("the kernel refuses", func(t *testing.T) {
		if Probe() == nil {
			t.Skip("this kernel does not refuse")
		}
		connect(t, true, false, nil).exchange(t, false)
	})
}

// While the kernel holds the keys, crypto/tls cannot write.
func TestNothingIsEncryptedTwice(t *testing.T) {
	p := connect(t, true, true, nil)
	if _, err := p.server.Conn.Write([]byte("from crypto/tls")); !errors.Is(err, errSealed) {
		t.Errorf("crypto/tls wrote: %v", err)
	}
	q := connect(t, false, false, nil)
	if _, err := q.server.SyscallConn(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("the socket of crypto/tls is handed out: %v", err)
	}
}

// The real kernel encrypts, and a file goes to the connection with sendfile.
func TestInTheKernel(t *testing.T) {
	if err := Probe(); err != nil {
		if !strings.Contains(err.Error(), "(fix: ") {
			t.Errorf("no fix: %v", err)
		}
		t.Skip(err)
	}
	for _, room := range []int{0, 256 << 10, 64 << 10, 32 << 10, 16 << 10} { // the kernel needs room for one record
		t.Run(fmt.Sprintf("room %d", room), func(t *testing.T) {
			p := connect(t, true, false, nil)
			err := control(p.server.socket, func(fd int) error {
				if room == 0 {
					return nil
				}
				return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, room)
			})
			if err != nil {
				t.Fatal(err)
			}
			p.exchange(t, true)
		})
	}
}
