// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/IBM-Cloud/power-go-client/power/models"
	"github.com/go-openapi/strfmt"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
)

// machine is a VM.
type machine struct {
	id, name, network, mac, address string
	made                            time.Time
	step                            time.Duration
	create                          *models.PVMInstanceCreate
	tags                            []string
	failure                         string // of its build
	off                             bool
	gone                            time.Time // when a deletion is over
}

func (m *machine) built() bool  { return time.Since(m.made) > m.step }
func (m *machine) leased() bool { return time.Since(m.made) > 2*m.step && m.failure == "" }

func (m *machine) status() string {
	switch {
	case !m.gone.IsZero():
		return "DELETING"
	case !m.built():
		return "BUILD"
	case m.failure != "":
		return "ERROR"
	case m.off:
		return "SHUTOFF"
	}
	return "ACTIVE"
}

func (s *Sim) instances(out http.ResponseWriter, r *http.Request, path []string) {
	s.sweep()
	if len(path) == 0 {
		switch r.Method {
		case http.MethodPost:
			s.create(out, r)
		case http.MethodGet:
			s.list(out)
		default:
			refuse(out, http.StatusMethodNotAllowed, "%s", r.Method)
		}
		return
	}
	m := s.vms[path[0]]
	switch {
	case m == nil:
		refuse(out, http.StatusNotFound, "pvm-instance %s does not exist", path[0])
	case len(path) == 2 && path[1] == "action" && r.Method == http.MethodPost:
		s.act(out, r, m)
	case len(path) == 3 && path[1] == "volumes":
		s.attachments(out, r, m, path[2])
	case len(path) == 1 && r.Method == http.MethodGet:
		writeJSON(out, http.StatusOK, m.show(true))
	case len(path) == 1 && r.Method == http.MethodDelete:
		s.delete(out, m)
	default:
		refuse(out, http.StatusNotFound, "no such resource")
	}
}

// Tick ends deletions whose time has come; requests do too.
func (s *Sim) Tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	s.settleVolumes()
}

func (s *Sim) sweep() {
	for id, m := range s.vms {
		if !m.gone.IsZero() && time.Now().After(m.gone) {
			delete(s.vms, id)
			s.World.Remove(cloudsim.KindInstance, id)
		}
	}
}

// list leaves out the tags (the model PVMInstanceReference has none).
func (s *Sim) list(out http.ResponseWriter) {
	list := []map[string]any{}
	for _, m := range s.vms {
		list = append(list, m.show(false))
	}
	writeJSON(out, http.StatusOK, map[string]any{"pvmInstances": list})
}

func (s *Sim) delete(out http.ResponseWriter, m *machine) {
	if !m.built() {
		// An assumption: terraform's provider waits for the end of a build
		// before it deletes.
		refuse(out, http.StatusBadRequest, "pvm-instance %s is in state BUILD and cannot be deleted", m.id)
		return
	}
	if m.gone.IsZero() {
		m.gone = time.Now().Add(s.Step)
		s.World.Deleting(cloudsim.KindInstance, m.id)
	}
	writeJSON(out, http.StatusOK, map[string]any{})
}

func (s *Sim) act(out http.ResponseWriter, r *http.Request, m *machine) {
	var body models.PVMInstanceAction
	if err := decode(r.Body, &body); err != nil {
		refuse(out, http.StatusBadRequest, "%v", err)
		return
	}
	if err := body.Validate(strfmt.Default); err != nil {
		refuse(out, http.StatusUnprocessableEntity, "%v", err)
		return
	}
	switch status := m.status(); {
	case *body.Action == "immediate-shutdown" && status == "ACTIVE":
		m.off = true
	case *body.Action == "start" && status == "SHUTOFF":
		m.off = false
	default:
		refuse(out, http.StatusConflict, "%s is not possible in state %s", *body.Action, status)
		return
	}
	writeJSON(out, http.StatusOK, map[string]any{})
}

// decode refuses what the model does not know.
func decode(from io.Reader, into any) error {
	text, err := io.ReadAll(io.LimitReader(from, 1<<20))
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func (s *Sim) create(out http.ResponseWriter, r *http.Request) {
	var body models.PVMInstanceCreate
	if err := decode(r.Body, &body); err != nil {
		refuse(out, http.StatusBadRequest, "%v", err)
		return
	}
	if err := body.Validate(strfmt.Default); err != nil {
		refuse(out, http.StatusUnprocessableEntity, "%v", err)
		return
	}
	if err := check(&body); err != nil {
		refuse(out, http.StatusBadRequest, "%v", err)
		return
	}
	m := s.add(&body, false)
	if f := s.World.Called(LateFailure); f != nil {
		m.failure = f.Message
	}
	writeJSON(out, http.StatusAccepted, []any{m.show(true)})
}

var (
	serverName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,46}$`)
	userTag    = regexp.MustCompile(`^[A-Za-z0-9 _.:-]{1,128}$`)
)

// check is what the models leave open.
func check(body *models.PVMInstanceCreate) error {
	var errs []error
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	add(!serverName.MatchString(*body.ServerName), "server name %q is not valid", *body.ServerName)
	add(*body.ImageID != Image && *body.ImageID != BrokenImage, "image %s does not exist", *body.ImageID)
	add(len(body.Networks) == 0, "no networks")
	for _, n := range body.Networks {
		add(*n.NetworkID != PublicNetwork && *n.NetworkID != DHCPNetwork, "network %s does not exist", *n.NetworkID)
	}
	add(body.SysType != "" && !slices.Contains(SystemTypes, body.SysType), "system type %s does not exist", body.SysType)
	add(body.KeyPairName != "" && body.KeyPairName != SSHKey, "SSH key %s does not exist", body.KeyPairName)
	add(*body.Memory < 2 || *body.Memory > 960, "memory %v GiB is not from 2 to 960", *body.Memory)
	add(*body.Processors < 0.25 || *body.Processors > 15, "processors %v is not from 0.25 to 15", *body.Processors)
	add(len(body.UserData) > 63<<10, "user data exceeds 63K")
	_, err := base64.StdEncoding.DecodeString(body.UserData)
	add(err != nil, "user data is not base64")
	for _, tag := range body.UserTags {
		add(!userTag.MatchString(tag), "tag %q is not valid", tag)
	}
	return errors.Join(errs...)
}

func (s *Sim) add(body *models.PVMInstanceCreate, foreign bool) *machine {
	s.serial++
	// No two have one stamp, so that their order can be told.
	s.last = later(time.Now(), s.last.Add(time.Millisecond))
	m := &machine{
		id: fmt.Sprintf("%08x-0000-4000-8000-000000000000", s.serial*2654435761%(1<<32)), name: *body.ServerName,
		network: *body.Networks[0].NetworkID, mac: fmt.Sprintf("fa:16:3e:%02x:%02x:%02x", s.serial>>16, s.serial>>8&255, s.serial&255),
		address: fmt.Sprintf("192.168.%d.%d", s.serial/250%250, s.serial%250+2), made: s.last, step: s.Step, create: body,
	}
	m.tags = kept(body.UserTags)
	if *body.ImageID == BrokenImage {
		m.failure = "the image does not boot"
	}
	s.vms[m.id] = m
	if foreign {
		s.World.AddForeign(cloudsim.KindInstance, m.id, s.tagsOf(m))
	} else {
		s.World.Add(cloudsim.KindInstance, m.id, s.tagsOf(m))
	}
	return m
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// TagsOf, if any, reads the owner tags in user tags, for the ledger.
var TagsOf func(userTags []string) map[string]string

func (s *Sim) tagsOf(m *machine) map[string]string {
	if TagsOf == nil {
		return map[string]string{provider.TagKey: m.name}
	}
	return TagsOf(m.tags)
}

// AddForeign makes an instance of somebody else.
func (s *Sim) AddForeign(name string, userTags []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	image, network, memory, processors, kind := Image, PublicNetwork, 2.0, 0.5, "shared"
	m := s.add(&models.PVMInstanceCreate{
		ServerName: &name, ImageID: &image, Memory: &memory, Processors: &processors, ProcType: &kind, UserTags: userTags,
		Networks: []*models.PVMInstanceAddNetwork{{NetworkID: &network}},
	}, true)
	m.made = time.Time{}
}

// UserData is what an instance was handed, as its guest would read it.
func (s *Sim) UserData(id string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vms[id] == nil {
		return "", errors.New("no such instance")
	}
	text, err := base64.StdEncoding.DecodeString(s.vms[id].create.UserData)
	return string(text), err
}

func (m *machine) show(whole bool) map[string]any {
	shown := map[string]any{
		"pvmInstanceID": m.id, "serverName": m.name, "status": m.status(), "creationDate": m.made.UTC().Format("2006-01-02T15:04:05.000Z"),
		"imageID": *m.create.ImageID, "memory": *m.create.Memory, "processors": *m.create.Processors, "procType": *m.create.ProcType,
		"sysType": m.create.SysType, "href": "/pvm-instances/" + m.id,
	}
	if !whole {
		return shown
	}
	nic := map[string]any{"networkID": m.network, "macAddress": m.mac, "type": "dynamic"}
	if m.network == PublicNetwork && m.built() && m.failure == "" {
		nic["type"], nic["ipAddress"], nic["externalIP"] = "fixed", m.address, strings.Replace(m.address, "192.168.", "203.0.", 1)
	}
	shown["networks"], shown["userTags"] = []any{nic}, m.tags
	if m.status() == "ERROR" {
		shown["fault"] = map[string]string{"details": m.failure}
	}
	return shown
}
