// SPDX-License-Identifier: Apache-2.0

// Package record writes down what a cloud answered to a provider, whatever
// language that is written in: a proxy on the loopback address that opens the
// provider's TLS connections. What could be a secret is masked before it is
// written.
package record

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/outrigger/outrigger/internal/authority"
)

// maxBody is how much of a body is written.
const maxBody = 256 << 10

// Exchange is one call and its answer, a line of the file.
type Exchange struct {
	Time     time.Time         `json:"time"`
	Method   string            `json:"method"`
	Host     string            `json:"host"`
	Path     string            `json:"path"`
	Query    string            `json:"query,omitempty"`
	Asked    map[string]string `json:"requestHeaders,omitempty"`
	Request  string            `json:"request,omitempty"`
	Status   int               `json:"status"`
	Answered map[string]string `json:"responseHeaders,omitempty"`
	Response string            `json:"response,omitempty"`
	Took     int64             `json:"milliseconds"`
}

// Recorder is a proxy that is running.
type Recorder struct {
	authority *authority.Authority
	env       map[string]string
	server    *http.Server
	forward   *httputil.ReverseProxy

	mu   sync.Mutex
	file *os.File
	mask func(string) string
}

// File is what a folder of records has in it.
const File = "exchanges.jsonl"

// Start serves a proxy that writes to a folder, which is made. upstream nil is
// the way that the environment says.
func Start(dir string, upstream http.RoundTripper) (*Recorder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, File), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s has a record already: name another folder", dir)
	}
	if err != nil {
		return nil, err
	}
	r := &Recorder{mask: masker(nil), file: file}
	if upstream == nil {
		upstream = http.DefaultTransport
	}
	r.forward = &httputil.ReverseProxy{
		Transport: writing{r, upstream}, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.Host = p.In.Host
			// Names under localhost are this machine (RFC 6761, section 6.3), and
			// go through proxies, which its addresses do not.
			if name, port, err := net.SplitHostPort(p.In.Host); err == nil && strings.HasSuffix(name, ".localhost") {
				p.Out.URL.Host = net.JoinHostPort("127.0.0.1", port)
			}
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // the provider sees a lost connection, as there was one
		},
	}
	if err := r.listen(dir); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return r, nil
}

func (r *Recorder) listen(dir string) (err error) {
	bundle := filepath.Join(dir, "authorities.pem")
	if r.authority, err = newAuthority(bundle); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	at := "http://" + listener.Addr().String()
	r.env = map[string]string{"HTTPS_PROXY": at, "HTTP_PROXY": at, "https_proxy": at, "http_proxy": at, "SSL_CERT_FILE": bundle}
	r.server = &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: time.Minute}
	go r.server.Serve(listener)
	return nil
}

// Hide takes out what the provider was given as secrets, wherever it is echoed.
func (r *Recorder) Hide(secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mask = masker(secrets)
}

// Env returns the variables that lead a provider's process through the proxy.
func (r *Recorder) Env() map[string]string { return r.env }

// Close ends the proxy and the file.
func (r *Recorder) Close() error { return errors.Join(r.server.Close(), r.file.Close()) }

// serve takes calls without TLS, and opens the tunnels of those with it.
func (r *Recorder) serve(w http.ResponseWriter, in *http.Request) {
	if in.Method != http.MethodConnect {
		r.forward.ServeHTTP(w, in)
		return
	}
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		http.Error(w, "no tunnels here", http.StatusInternalServerError)
		return
	}
	conn, buffered, err := hijacker.Hijack()
	if err != nil {
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		conn.Close()
		return
	}
	r.open(&buffering{conn, buffered.Reader}, in.Host)
}

// open speaks as the host, until the provider hangs up.
func (r *Recorder) open(conn net.Conn, host string) {
	inner := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		in.URL.Scheme, in.URL.Host = "https", host
		r.forward.ServeHTTP(w, in)
	})}
	once := &single{conn: wrap(r.authority, conn, host), closed: make(chan struct{})}
	inner.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			once.Close()
		}
	}
	inner.Serve(once)
}

// buffering reads first what was read with the CONNECT.
type buffering struct {
	net.Conn
	from *bufio.Reader
}

func (b *buffering) Read(p []byte) (int, error) { return b.from.Read(p) }

// single is a listener of one connection.
type single struct {
	conn   net.Conn
	taken  bool
	once   sync.Once
	closed chan struct{}
}

func (s *single) Accept() (net.Conn, error) {
	if !s.taken {
		s.taken = true
		return s.conn, nil
	}
	<-s.closed
	return nil, net.ErrClosed
}
func (s *single) Close() error   { s.once.Do(func() { close(s.closed) }); return nil }
func (s *single) Addr() net.Addr { return s.conn.LocalAddr() }

// writing is a transport that writes exchanges down.
type writing struct {
	r    *Recorder
	next http.RoundTripper
}

func (w writing) RoundTrip(in *http.Request) (*http.Response, error) {
	started := time.Now()
	asked, err := keep(&in.Body)
	if err != nil {
		return nil, err
	}
	e := Exchange{Time: started.UTC(), Method: in.Method, Host: in.URL.Host, Path: in.URL.Path, Query: in.URL.RawQuery, Asked: headers(in.Header), Request: asked}
	reply, err := w.next.RoundTrip(in)
	e.Took = time.Since(started).Milliseconds()
	if err != nil {
		e.Response = "no answer: " + err.Error()
		w.r.write(e)
		return nil, err
	}
	e.Status, e.Answered = reply.StatusCode, headers(reply.Header)
	if e.Response, err = keep(&reply.Body); err != nil {
		return nil, err
	}
	w.r.write(e)
	return reply, nil
}

// keep reads a body and puts it back.
func keep(body *io.ReadCloser) (string, error) {
	if *body == nil {
		return "", nil
	}
	text, err := io.ReadAll(*body)
	if err != nil {
		return "", err
	}
	if err := (*body).Close(); err != nil {
		return "", err
	}
	*body = io.NopCloser(bytes.NewReader(text))
	return string(text[:min(len(text), maxBody)]), nil
}

func (r *Recorder) write(e Exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Path, e.Query = r.mask(e.Path), maskQuery(e.Query, r.mask)
	e.Request, e.Response = maskBody(e.Request, r.mask), maskBody(e.Response, r.mask)
	for _, list := range []map[string]string{e.Asked, e.Answered} {
		for name, value := range list {
			list[name] = r.mask(value)
		}
	}
	line, err := json.Marshal(e)
	if err != nil {
		return
	}
	r.file.Write(append(line, '\n'))
}

// newAuthority makes one for the certificates of hosts. It writes its certificate and those that the system trusts to a file.
func newAuthority(file string) (*authority.Authority, error) {
	now := time.Now()
	a, err := authority.New("provider-check --record", now.Add(-time.Hour), now.AddDate(0, 0, 7))
	if err != nil {
		return nil, err
	}
	text := a.PEM()
	for _, system := range []string{os.Getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"} {
		if more, err := os.ReadFile(system); err == nil {
			text = append(text, more...)
			break
		}
	}
	return a, os.WriteFile(file, text, 0o600)
}

// wrap speaks TLS as the host.
func wrap(a *authority.Authority, conn net.Conn, address string) net.Conn {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	return tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		certificate, key, err := a.Issue(authority.Server(host))
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(certificate, key)
		return &pair, err
	}})
}
