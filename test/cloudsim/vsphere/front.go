// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// serve is vcsim with what it leaves out: it grants everything to everybody,
// lets a VM be destroyed, and panics, while it is still being cloned,
// reconfigures whatever changeVersion says (VirtualMachineConfigSpec), makes VMs
// of one name in one folder (CreateVM_Task), and has nothing on the disks of clones.
func (s *Site) serve(out http.ResponseWriter, r *http.Request) {
	vcsim := s.center.model.Service.ServeMux
	switch action(r) {
	case "HasPrivilegeOnEntities":
		answer := httptest.NewRecorder()
		vcsim.ServeHTTP(answer, r)
		s.reply(out, s.withDenied(answer.Body.String()))
	case "CloneVM_Task":
		s.tasks.Lock()
		defer s.tasks.Unlock()
		name, answer := named.FindSubmatch(peek(r)), httptest.NewRecorder()
		s.awaitClone(name)
		s.copyContents(r)
		vcsim.ServeHTTP(answer, r)
		s.began(name, answer.Body.String())
		out.WriteHeader(answer.Code)
		s.reply(out, answer.Body.String())
	case "CreateVM_Task":
		s.inOrder(out, r, vcsim)
	case "Destroy_Task", "PowerOnVM_Task", "ReconfigVM_Task":
		if s.cloning() {
			s.refuse(out, r, cloudsim.Refused("", http.StatusInternalServerError, "TaskInProgress"))
			return
		}
		s.inOrder(out, r, vcsim)
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

// inOrder serves one task of the site after the other, and fails those with
// another changeVersion than the VM's, or a name that another VM has.
func (s *Site) inOrder(out http.ResponseWriter, r *http.Request, vcsim http.Handler) {
	s.tasks.Lock()
	defer s.tasks.Unlock()
	data := peek(r)
	ctx := simulator.Context{Context: context.Background(), Map: s.center.model.Map()}
	if want := versioned.FindSubmatch(data); want != nil {
		vm, ok := ctx.Map.Get(types.ManagedObjectReference{Type: "VirtualMachine", Value: string(want[1])}).(*simulator.VirtualMachine)
		version := ""
		if ok {
			ctx.Map.WithLock(&ctx, vm, func() { version = vm.Config.ChangeVersion })
		}
		if ok && version != string(want[2]) {
			s.refuse(out, r, cloudsim.Refused("", http.StatusInternalServerError, "task:ConcurrentAccess"))
			return
		}
	}
	if name := created.FindSubmatch(data); name != nil {
		if s.awaitClone(name); s.vm(string(name[1])) != nil {
			s.refuse(out, r, cloudsim.Refused("", http.StatusInternalServerError, "task:DuplicateName"))
			return
		}
	}
	answer := httptest.NewRecorder()
	vcsim.ServeHTTP(answer, r)
	if found := taskSyntax.FindStringSubmatch(answer.Body.String()); found != nil {
		s.awaitTask(types.ManagedObjectReference{Type: "Task", Value: found[1]})
	}
	out.WriteHeader(answer.Code)
	s.reply(out, answer.Body.String())
}

// peek returns the body of a request, which can be read again.
func peek(r *http.Request) []byte {
	data, _ := io.ReadAll(r.Body) // of a request that is cut short, the next reader says so
	r.Body = io.NopCloser(bytes.NewReader(data))
	return data
}

var (
	created = regexp.MustCompile(`(?s)<CreateVM_Task[^>]*>.*?<name>([^<]+)<`)
	named   = regexp.MustCompile(`<name>([^<]+)<`) // the first of a request to clone is the clone's
)

// versioned finds VM and version in a request.
var versioned = regexp.MustCompile(`(?s)<ReconfigVM_Task[^>]*>.*?<_this[^>]*>([^<]+)<.*?<changeVersion>([^<]+)<`)

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

func (s *Site) began(name [][]byte, answer string) {
	if found := taskSyntax.FindStringSubmatch(answer); found != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clones[string(name[1])] = types.ManagedObjectReference{Type: "Task", Value: found[1]}
	}
}

// cloning reports whether a clone of this test is still being made.
func (s *Site) cloning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.clones, func(_ string, task types.ManagedObjectReference) bool { return s.ended(task) })
	return len(s.clones) > 0
}

// awaitClone waits until no clone of that name is being made, with which vcsim compares no name.
func (s *Site) awaitClone(name [][]byte) {
	s.mu.Lock()
	task, is := s.clones[string(name[1])]
	s.mu.Unlock()
	if is {
		s.awaitTask(task)
	}
}

func (s *Site) awaitTask(ref types.ManagedObjectReference) {
	ctx := simulator.Context{Context: context.Background(), Map: s.center.model.Map()}
	if task, ok := ctx.Map.Get(ref).(*simulator.Task); ok {
		task.Wait()
	}
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
