package apierr

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"objstore/internal/oerr"
)

func TestEveryCodeHasANameAStatusAndAText(t *testing.T) {
	seen := map[string]Code{}
	for c := Code(0); c < numCodes; c++ {
		if c.String() == "" || c.Status() < 300 || c.Message() == "" {
			t.Errorf("code %d: name %q, status %d, text %q", c, c.String(), c.Status(), c.Message())
		}
		if other, dup := seen[c.String()]; dup {
			t.Errorf("codes %d and %d are both called %q", c, other, c)
		}
		seen[c.String()] = c
	}
}

func TestEveryKindOfTheEngineHasACode(t *testing.T) {
	for k := oerr.Kind(0); !strings.HasPrefix(k.String(), "kind_"); k++ {
		if int(k) >= len(kinds) {
			t.Errorf("kind %v has no row in the table", k)
		}
	}
}

func TestUnknownIsNeverAbsentNorForbidden(t *testing.T) {
	for _, k := range []oerr.Kind{oerr.Unavailable, oerr.OutcomeUnknown, oerr.DeadlineExceeded, oerr.NotLeader, oerr.StaleEpoch, oerr.Closed, oerr.Busy} {
		if got := From(oerr.E("x", k, nil)).Code.Status(); got != 503 {
			t.Errorf("kind %v answers %d, expected 503", k, got)
		}
	}
	if got := From(context.DeadlineExceeded).Code; got != ServiceUnavailable {
		t.Errorf("a passed deadline answers %v", got)
	}
}

func TestFromKeepsAnEdgeErrorThroughWrappingAndHidesInternalText(t *testing.T) {
	in := Errorf(BadDigest, "no")
	if got := From(fmt.Errorf("object.put: %w", oerr.Wrap("object.put", in))); got != in {
		t.Errorf("a wrapped edge error became %v", got)
	}
	got := From(errors.New("secret /path"))
	if got.Code != InternalError || strings.Contains(got.Text(), "secret") {
		t.Errorf("an unclassified error became %v: %q", got.Code, got.Text())
	}
}

func TestTheEngineSeesTheKindOfAnEdgeError(t *testing.T) {
	for code, want := range map[Code]oerr.Kind{BadDigest: oerr.BadDigest, MalformedXML: oerr.InvalidArgument, SignatureDoesNotMatch: oerr.InvalidArgument, InternalError: oerr.Internal, NoSuchKey: oerr.NoSuchKey} {
		if got := oerr.KindOf(fmt.Errorf("w: %w", New(code))); got != want {
			t.Errorf("%v has kind %v, expected %v", code, got, want)
		}
	}
}
