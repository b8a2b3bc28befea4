// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// serve is vcsim with what it leaves out: it grants everything to everybody,
// and lets a VM be destroyed, and panics, while it is still being cloned.
func (s *Site) serve(out http.ResponseWriter, r *http.Request) {
	vcsim := s.center.model.Service.ServeMux
	switch action(r) {
	case "HasPrivilegeOnEntities":
		answer := httptest.NewRecorder()
		vcsim.ServeHTTP(answer, r)
		s.reply(out, s.withDenied(answer.Body.String()))
	case "CloneVM_Task":
		answer := httptest.NewRecorder()
		vcsim.ServeHTTP(answer, r)
		s.began(answer.Body.String())
		out.WriteHeader(answer.Code)
		s.reply(out, answer.Body.String())
	case "Destroy_Task", "PowerOnVM_Task", "ReconfigVM_Task":
		if s.cloning() {
			s.refuse(out, r, cloudsim.Refused("", http.StatusInternalServerError, "TaskInProgress"))
			return
		}
		vcsim.ServeHTTP(out, r)
	case "WaitForUpdatesEx":
		// A lease tells the address of vcsim itself, which has no script.
		answer := httptest.NewRecorder()
		vcsim.ServeHTTP(answer, r)
		out.WriteHeader(answer.Code)
		s.reply(out, leased.ReplaceAllString(answer.Body.String(), s.Server.URL+"/nfc/"))
	default:
		vcsim.ServeHTTP(out, r)
	}
}

var leased = regexp.MustCompile(`https?://[^/<]*/nfc/`)

func (s *Site) reply(out http.ResponseWriter, text string) {
	out.Header().Set("Content-Type", "text/xml; charset=utf-8")
	io.WriteString(out, text)
}

func (s *Site) withDenied(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, privilege := range s.denied {
		id := "<privId>" + privilege + "</privId><isGranted>"
		text = strings.ReplaceAll(text, id+"true", id+"false")
	}
	return text
}

var taskSyntax = regexp.MustCompile(`<returnval type="Task"[^>]*>([^<]+)<`)

func (s *Site) began(answer string) {
	if found := taskSyntax.FindStringSubmatch(answer); found != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clones = append(s.clones, types.ManagedObjectReference{Type: "Task", Value: found[1]})
	}
}

// cloning reports whether a clone of this test is still being made.
func (s *Site) cloning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clones = slices.DeleteFunc(s.clones, s.ended)
	return len(s.clones) > 0
}

func (s *Site) ended(ref types.ManagedObjectReference) (ended bool) {
	ctx := simulator.Context{Context: context.Background(), Map: s.center.model.Map()}
	task, ok := ctx.Map.Get(ref).(*simulator.Task)
	if !ok {
		return true
	}
	ctx.Map.WithLock(&ctx, task, func() {
		ended = task.Info.State == types.TaskInfoStateSuccess || task.Info.State == types.TaskInfoStateError
	})
	return ended
}

// action is the method of a SOAP request: the first element of the body; nfc is
// the writing of a disk.
func action(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, "/nfc/") {
		return "nfc"
	}
	if r.Method != http.MethodPost {
		return ""
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return ""
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	decoder := xml.NewDecoder(bytes.NewReader(data))
	for inBody := false; ; {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		start, ok := token.(xml.StartElement)
		if ok && inBody {
			return start.Name.Local
		}
		inBody = inBody || ok && start.Name.Local == "Body"
	}
}

const envelope = `<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:vim25="urn:vim25"><soapenv:Body>%s</soapenv:Body></soapenv:Envelope>`

// refuse returns as vCenter does: a SOAP fault, a task that fails, or, with the
// code "http", whatever stands before it.
func (s *Site) refuse(out http.ResponseWriter, r *http.Request, f cloudsim.Fault) {
	if f.Code == "http" {
		http.Error(out, f.Message, f.Status)
		return
	}
	out.Header().Set("Content-Type", "text/xml; charset=utf-8")
	if name, ok := strings.CutPrefix(f.Code, "task:"); ok {
		method := action(r)
		fmt.Fprintf(out, envelope, fmt.Sprintf(`<%sResponse xmlns="urn:vim25"><returnval type="Task">%s</returnval></%[1]sResponse>`, method, s.failedTask(method, name)))
		return
	}
	out.WriteHeader(http.StatusInternalServerError)
	body := fmt.Sprintf(`<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>%s</faultstring><detail><%sFault xmlns="urn:vim25" xsi:type="vim25:%[2]s">%s</%[2]sFault></detail></soapenv:Fault>`,
		html.EscapeString(f.Message), f.Code, details[f.Code])
	fmt.Fprintf(out, envelope, body)
}

// details are the members of faults that are of interest.
var details = map[string]string{
	"NoPermission":    `<object type="Folder">group-v1</object><privilegeId>VirtualMachine.Provisioning.DeployTemplate</privilegeId>`,
	"InvalidArgument": `<invalidProperty>spec.config</invalidProperty>`,
}

// failedTask makes a task that ends in a fault.
func (s *Site) failedTask(method, fault string) string {
	kind, ok := types.TypeFunc()(fault)
	if !ok {
		panic("no such fault: " + fault)
	}
	said := reflect.New(kind).Interface().(types.BaseMethodFault)
	task := simulator.CreateTask(s.folder, strings.TrimSuffix(method, "_Task"), func(*simulator.Task) (types.AnyType, types.BaseMethodFault) { return nil, said })
	ctx := simulator.Context{Context: context.Background(), Map: s.center.model.Map()}
	return task.Run(&ctx).Value
}
