// SPDX-License-Identifier: Apache-2.0

package byom

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// Files of the guest, below what SFTP shows.
const (
	UserDataFile = "/cidata/user-data"
	RebootFile   = "/cidata/reboot"
	bootID       = "/cidata/boot-id"
)

// start is the guest's: nothing of before is left.
func (m *Machine) start() {
	m.boots++
	m.files = map[string]string{}
	if !m.mute {
		m.files[bootID] = fmt.Sprintf("boot-%s-%d\n", m.Addr, m.boots)
	}
}

// Mute makes the machine serve no boot id, as guests of others do.
func (m *Machine) Mute() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mute = true
	delete(m.files, bootID)
}

// SetDown takes the machine off the network, or brings it back.
func (m *Machine) SetDown(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
	if down {
		m.cut()
	}
}

// Put makes a file behind the provider's back.
func (m *Machine) Put(name, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = text
}

// File returns what is in a file; nothing where there is none.
func (m *Machine) File(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[name]
}

// Clear is a boot of the machine that nobody has to wait for.
func (m *Machine) Clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.start()
}

// Boots counts how often the machine has booted.
func (m *Machine) Boots() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boots
}

func (m *Machine) cut() {
	for conn := range m.conns {
		conn.Close()
		m.forget(conn)
	}
}

// forget takes a connection that is closed off the list.
func (m *Machine) forget(conn net.Conn) {
	if ended := m.conns[conn]; ended != nil {
		close(ended)
		delete(m.conns, conn)
	}
}

// rebooting is called with the lock held. The machine goes down when whoever
// ordered it has hung up: a real one takes long enough for the reply to arrive.
func (m *Machine) rebooting(by net.Conn) {
	m.pool.World.Deleting(cloudsim.KindInstance, m.Addr.String())
	ended, open := m.conns[by]
	if !open {
		ended = make(chan struct{})
		close(ended)
	}
	go func(hungUp <-chan struct{}) {
		select {
		case <-hungUp:
		case <-time.After(patience):
		}
		time.Sleep(RebootTime)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.cut()
		m.start()
		m.pool.World.Remove(cloudsim.KindInstance, m.Addr.String())
	}(ended)
}

// patience bounds the wait for somebody who never hangs up.
const patience = 5 * time.Second

// take serves a connection unless the machine is down.
func (m *Machine) take(conn net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return false
	}
	m.conns[conn] = make(chan struct{})
	go m.serve(conn)
	return true
}

// accept opens a connection over loopback.
func (m *Machine) accept(ctx context.Context) (net.Conn, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	var d net.Dialer
	client, err := d.DialContext(ctx, "tcp", listener.Addr().String())
	if err != nil {
		return nil, err
	}
	server, err := listener.Accept()
	if err != nil {
		client.Close()
		return nil, err
	}
	if !m.take(server) {
		client.Close()
		server.Close()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route to host")}
	}
	return client, nil
}

func (m *Machine) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.forget(conn)
	}()
	_, channels, requests, err := ssh.NewServerConn(conn, m.pool.config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for offered := range channels {
		if offered.ChannelType() != "session" {
			_ = offered.Reject(ssh.UnknownChannelType, "sessions only")
			continue
		}
		channel, requests, err := offered.Accept()
		if err != nil {
			return
		}
		go m.session(conn, channel, requests)
	}
}

// session knows the subsystem sftp and nothing else.
func (m *Machine) session(conn net.Conn, channel ssh.Channel, requests <-chan *ssh.Request) {
	for r := range requests {
		sftpAsked := r.Type == "subsystem" && bytes.HasSuffix(r.Payload, []byte("sftp"))
		_ = r.Reply(sftpAsked, nil)
		if sftpAsked {
			go func() {
				h := &handlers{m, conn}
				s := sftp.NewRequestServer(channel, sftp.Handlers{FileGet: h, FilePut: h, FileCmd: h, FileList: h})
				_ = s.Serve()
				s.Close()
			}()
		}
	}
}

// handlers are the machine's file system on one connection.
type handlers struct {
	m    *Machine
	conn net.Conn
}

// do runs under the script's faults.
func (h *handlers) do(action string, do func() error) error {
	f := h.m.pool.World.Called(action)
	if f == nil || f.After || !f.Drop {
		h.m.mu.Lock()
		err := do()
		h.m.mu.Unlock()
		if f == nil || !f.Drop {
			return err
		}
	}
	h.conn.Close()
	return io.ErrUnexpectedEOF
}

// Fileread implements sftp.FileReader.
func (h *handlers) Fileread(r *sftp.Request) (io.ReaderAt, error) {
	var text string
	err := h.do("sftp:Get", func() error {
		var ok bool
		if text, ok = h.m.files[r.Filepath]; !ok {
			return os.ErrNotExist
		}
		return nil
	})
	return strings.NewReader(text), err
}

// file is written as a whole when it is closed.
type file struct {
	h    *handlers
	name string
	mu   sync.Mutex
	data []byte
}

func (f *file) WriteAt(p []byte, at int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if end := int(at) + len(p); end > len(f.data) {
		f.data = append(f.data, make([]byte, end-len(f.data))...)
	}
	return copy(f.data[at:], p), nil
}

func (f *file) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.h.m.mu.Lock()
	defer f.h.m.mu.Unlock()
	f.h.m.files[f.name] = string(f.data)
	return nil
}

// Filewrite implements sftp.FileWriter.
func (h *handlers) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	err := h.do("sftp:Put", func() error {
		if _, there := h.m.files[r.Filepath]; there && r.Pflags().Excl {
			return os.ErrExist
		}
		h.m.files[r.Filepath] = ""
		return nil
	})
	return &file{h: h, name: r.Filepath}, err
}

// Filecmd implements sftp.FileCmder. As in OpenSSH a rename replaces nothing.
func (h *handlers) Filecmd(r *sftp.Request) error {
	switch r.Method {
	case "Rename":
		return h.do("sftp:Rename", func() error { return h.rename(r.Filepath, r.Target) })
	case "Remove":
		return h.do("sftp:Remove", func() error {
			delete(h.m.files, r.Filepath)
			return nil
		})
	}
	return sftp.ErrSSHFxOpUnsupported
}

func (h *handlers) rename(from, to string) error {
	text, ok := h.m.files[from]
	if _, there := h.m.files[to]; there || !ok {
		return sftp.ErrSSHFxFailure
	}
	delete(h.m.files, from)
	h.m.files[to] = text
	switch to {
	case UserDataFile:
		h.booked()
	case RebootFile:
		h.m.rebooting(h.conn)
	}
	return nil
}

// booked writes the machine into the books as the instance that the state says
// it is.
func (h *handlers) booked() {
	_, tags := h.m.pool.entryOf(h.m.Addr)
	h.m.pool.World.Add(cloudsim.KindInstance, h.m.Addr.String(), tags)
}

// info is of a file or of the folder.
type info struct {
	name string
	size int64
	dir  bool
}

func (i info) Name() string     { return i.name }
func (i info) Size() int64      { return i.size }
func (info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool      { return i.dir }
func (info) Sys() any           { return nil }
func (i info) Mode() os.FileMode {
	if i.dir {
		return os.ModeDir | 0o755
	}
	return 0o644
}

// one is a list of one.
type one struct{ info os.FileInfo }

func (o one) ListAt(into []os.FileInfo, at int64) (int, error) {
	if at > 0 || len(into) == 0 {
		return 0, io.EOF
	}
	into[0] = o.info
	return 1, io.EOF
}

// Filelist implements sftp.FileLister, for Stat alone.
func (h *handlers) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	if r.Method != "Stat" {
		return nil, sftp.ErrSSHFxOpUnsupported
	}
	var found os.FileInfo
	err := h.do("sftp:Stat", func() error {
		text, ok := h.m.files[r.Filepath]
		switch {
		case r.Filepath == "/cidata":
			found = info{"cidata", 0, true}
		case !ok:
			return os.ErrNotExist
		default:
			found = info{r.Filepath, int64(len(text)), false}
		}
		return nil
	})
	return one{found}, err
}
