/* A model of one update after another on two workers: docs/model/README.md says what it is for and how to run it.
 *
 * Processes
 *   conductor(0), conductor(1)  what the gateway has asked of one worker, and what it makes of the answer:
 *                               survey.cpp, pause.cpp, load*.cpp, resume.cpp, heal.cpp, watch.cpp
 *   gateway                     what looks at all workers: when a phase is over (the decisions of pause.cpp, load.cpp,
 *                               commit.cpp, restore.cpp, finish.cpp), the journal's groups, and its own death and next
 *                               start (replay.cpp, recover.cpp)
 *   engine(0), engine(1)        late effects of calls that the gateway gave up, death and restart of the worker
 *   judge                       looks when nothing can move any more
 *
 * What stands for what
 *   m[i]   what the gateway's memory holds of worker i and of its part in the update (Worker and Target of state.hpp)
 *   d[i]   what the replay of the records on the disk would make of it. Memory that isn't in d is lost by a crash.
 *          `flush` is the append of a group; it also happens by itself at any moment (the held records' own time).
 *   e[i]   the truth: the engine. The gateway learns of it by readings only.
 *   m[i].step   says which call is on its way: one at a time, so that no channel is needed. A call is executed and its
 *          answer is handled in one transition. That is sound: what lies between the two is seen by nobody but the
 *          gateway, and a call that was executed without an answer is one that was given up and executed then.
 *   e[i].late   a call that was given up and is still on its way or in the queue. There is never more than one, which
 *          is asserted wherever something is sent (invariant 5).
 *   due    a decision over all workers is due; nothing else moves meanwhile, since it belongs to the same step.
 *
 * A deadline may pass at any call that isn't answered yet: that costs one of `loss`, like a lost connection. A worker
 * that is down answers nothing, and there deadlines cost nothing. Budgets are drawn at the start, each from 0 up, so that
 * every run ends in a time without faults, in which only what must happen is left.
 *
 * Long because a protocol is read as one.
 */
/* --- knobs, from the environment of the verifier, so that one compilation serves all searches; and which lines with
 * SEEN were reached, told at its end */
c_decl {
  \#include <stdio.h>
  \#include <stdlib.h>
  static unsigned char seen_lines[4096];
  static void tell_seen(void) {
    for (int line = 0; line < 4096; ++line) {
      if (seen_lines[line]) printf("seen %d\n", line);
    }
  }
  static int knob(const char *name, int usual) {
    const char *value = getenv(name);
    return value ? atoi(value) : usual;
  }
}
#define SEEN c_code { seen_lines[__LINE__] = 1; }

/* --- deliberate mistakes: each must break something (check.sh) */
#define EFFECT_BEFORE_RECORD (mistake == 1)
#define HEAL_TO_NEW (mistake == 2)
#define RESUME_UNKNOWN (mistake == 3)
#define TRUST_LABEL (mistake == 4)
#define BARRIER_ONCE (mistake == 5)
#define COMMIT_UNVERIFIED (mistake == 6)
#define READY_WITHOUT_READ (mistake == 7)
#define BLIND_WATCH (mistake == 8)
#define PAUSE_STRANDS (mistake == 9)
#define BARRIER_SKIPPED (mistake == 10)
#define RESUME_BEFORE_COMMIT (mistake == 11)
#define COMMIT_FORGOTTEN (mistake == 12)
#define RESUME_FORGOTTEN (mistake == 13)
#define RESTART_FORGOTTEN (mistake == 14)
#define JOINS_PAUSED (mistake == 15)
#define ASKS_FOR_EVER (mistake == 16)

/* --- words */
#define TORN 3    /* weights that are no version's; versions are 0 (what the engines started with), 1, 2 */
#define LOADING 3 /* the label `loading:`; other labels are a version's */
#define NOBODYS 3 /* m.ver: not known */

/* calls that change something, as late effects */
#define C_NONE 0
#define C_PAUSE 1
#define C_RESUME 2
#define C_LOAD(v) (4 + (v))
#define C_LABEL(v) (8 + (v))

/* registry */
#define READY 0
#define QUARANTINED 1
#define JOINING 2
#define BUSY 3 /* every state that an update passes through */

/* causes, as far as something follows from them */
#define NO_CAUSE 0
#define UNREACHABLE 1
#define RESTARTED 2
#define OTHER 3

/* verdicts */
#define UNTOUCHED 0
#define LOADED 1
#define VERIFIED 2
#define TOUCHED 3 /* torn */
#define UNKNOWN 4

/* steps: which call is on its way. *_A and *_B are a barrier's two asks (docs/adr/0001). */
#define NONE 0
#define SURVEY_A 1
#define SURVEY_B 2
#define SURVEY 3
#define SURVEYED 4
#define PAUSING 5
#define PAUSED 6
#define LABEL 7
#define LOAD 8
#define ASK_A 9
#define ASK_B 10
#define VERIFY 11
#define JUDGED 12
#define BARRIER_A 13
#define BARRIER_B 14
#define FORMER 15
#define RESUME 16
#define CHECK 17
#define H_READ 18
#define H_PAUSE 19
#define H_LABEL 20
#define H_LOAD 21
#define H_VERIFY 22
#define FENCE 23
#define DONE 24
#define WATCH_A 25
#define WATCH_B 26
#define WATCH_PAUSE 27

/* phases */
#define IDLE 0
#define PREPARING 1
#define SURVEYING 2
#define PAUSE_ALL 3
#define LOAD_ALL 4 /* LOADING and VERIFYING: one pipeline (docs/adr/0002) */
#define COMMITTING 5
#define RESUMING 6
#define RESTORING 7

typedef Memory {
  unsigned step : 5;
  unsigned st : 2;      /* worker.state */
  unsigned ver : 2;     /* worker.version */
  unsigned wc : 2;      /* worker.cause */
  unsigned pbu : 1;     /* worker.paused_by_us */
  unsigned psr : 1;     /* worker.pause_since_read */
  unsigned earlier : 1; /* worker.earlier isn't empty */
  unsigned inc : 1;     /* worker.incarnation */
  unsigned held : 1;    /* EarlierCall.held_before of the pause on its way */
  unsigned verdict : 3; /* from here on: the target */
  unsigned tc : 2;      /* cause */
  unsigned out : 1;     /* not included, and counted lost */
  unsigned extra : 1;
  unsigned load_sent : 1;
  unsigned intended : 1; /* a load's intent is recorded, with its label's, and the record of what came of it isn't */
  unsigned label_changed : 1;
  unsigned pause_sent : 1;
  unsigned was_paused : 1;
  unsigned paused : 1;
  unsigned resume_sent : 1;
  unsigned moved : 1; /* the process isn't the one of the targets' record any more */
  unsigned recovered : 1;
  unsigned caught_up : 1;
  unsigned asked : 1;
  unsigned former_ready : 1;
  unsigned fc : 2; /* former_cause */
};
typedef Disk {
  unsigned st : 2;
  unsigned ver : 2;
  unsigned wc : 2;
  unsigned pbu : 1;
  unsigned earlier : 1;
  unsigned inc : 1;
  unsigned done : 1;
  unsigned verdict : 3;
  unsigned tc : 2;
  unsigned out : 1;
  unsigned extra : 1;
  unsigned load_sent : 1;
  unsigned label_changed : 1;
  unsigned pause_sent : 1;
  unsigned was_paused : 1;
  unsigned resume_sent : 1;
  unsigned moved : 1;
  unsigned former_ready : 1;
  unsigned fc : 2;
};
typedef Engine {
  unsigned weights : 2;
  unsigned label : 2;
  unsigned paused : 1;
  unsigned inc : 1;
  unsigned down : 1;
  unsigned gone : 1; /* down, and never back */
  unsigned late : 4;
  unsigned stray : 1; /* a load tore it while it ran, since nobody had seen that its process is another one */
};
Memory m[2];
Disk d[2];
Engine e[2];

unsigned phase : 3;
unsigned disk_phase : 2;     /* 0 none or ended, 1 PREPARING, 2 PAUSING without targets, 3 with targets */
unsigned committed : 2;      /* the newest commit record on the disk; last good, too */
unsigned version : 2;        /* the active update's */
unsigned updates_left : 2;
unsigned crashes : 2;  /* budgets: deaths of the gateway */
unsigned losses : 2;   /* lost answers, deadlines that pass, cancels */
unsigned restarts : 1; /* workers that die; each may come back as a new process */
unsigned bad : 1;      /* loads that fail: refused, torn, or torn with an answer and a label that lie */
bit all_asked;         /* on_failure=rollback_all; else the quorum is half of the members, rounded up */
bit no_last_good;      /* nothing to heal with before the first commit */
unsigned mistake : 5;  /* a deliberate one; 0: the protocol as it is */
bit due;
hidden byte group;      /* scratch: this step makes an effect that waits for its records */
hidden byte goal; /* scratch */
bit told_not_committed;      /* a client was told `committed: false` of `version` */

/* --- the journal */
#define CHANGES(s) \
  ((s) == PAUSING || (s) == LABEL || (s) == LOAD || (s) == FORMER || (s) == RESUME || (s) == H_PAUSE || \
   (s) == H_LABEL || (s) == H_LOAD || (s) == FENCE || (s) == WATCH_PAUSE)
#define DISK_VERDICT(i) (m[i].intended -> UNKNOWN : m[i].verdict)
#define DISK_DONE(i) (m[i].step == FENCE || (m[i].step == DONE && m[i].st != JOINING))

/* What the records so far would be replayed to. An intent without an outcome is an earlier call; the load is planned with
 * its label (launch_one), so it may have begun. */
inline put(i) {
  d[i].st = m[i].st;
  d[i].ver = m[i].ver;
  d[i].wc = m[i].wc;
  d[i].pbu = m[i].pbu;
  d[i].earlier = (m[i].earlier || CHANGES(m[i].step));
  d[i].inc = m[i].inc;
  d[i].done = DISK_DONE(i);
  d[i].verdict = DISK_VERDICT(i);
  d[i].tc = m[i].tc;
  d[i].out = m[i].out;
  d[i].extra = m[i].extra;
  d[i].load_sent = (m[i].load_sent || m[i].intended);
  d[i].label_changed = m[i].label_changed;
  d[i].pause_sent = m[i].pause_sent;
  d[i].was_paused = m[i].was_paused;
  d[i].resume_sent = m[i].resume_sent;
  d[i].moved = m[i].moved;
  d[i].former_ready = m[i].former_ready;
  d[i].fc = m[i].fc
}
#define DIFFERS(i) \
  (d[i].st != m[i].st || d[i].ver != m[i].ver || d[i].wc != m[i].wc || d[i].pbu != m[i].pbu || \
   d[i].earlier != (m[i].earlier || CHANGES(m[i].step)) || d[i].inc != m[i].inc || d[i].done != DISK_DONE(i) || \
   d[i].verdict != DISK_VERDICT(i) || d[i].tc != m[i].tc || d[i].out != m[i].out || \
   d[i].load_sent != (m[i].load_sent || m[i].intended) || d[i].label_changed != m[i].label_changed || \
   d[i].pause_sent != m[i].pause_sent || d[i].resume_sent != m[i].resume_sent)

#define DISK_PHASE (phase == IDLE -> 0 : (phase == PREPARING -> 1 : (phase == SURVEYING -> 2 : 3)))
inline flush() {
  if
  :: crashes > 0 -> put(0); put(1)
  :: else /* nobody will read it */
  fi;
  disk_phase = DISK_PHASE
}

/* --- invariants, by their numbers in the protocol's section 13. A failed assertion names its own: these are never 1. */
hidden byte invariant_1, invariant_2, invariant_3, invariant_4, invariant_5, invariant_6, invariant_7, invariant_8;
hidden byte invariant_11, invariant_16, invariant_17;
#define HOLDS(n, what) assert(invariant_##n || (what))

/* 1, 2: what is READY holds what the registry says, and runs; another process under the same address isn't known yet. */
#define READY_IS_RIGHT(i) \
  (m[i].st != READY || m[i].inc != e[i].inc || e[i].down || \
   (e[i].weights == m[i].ver && e[i].label == m[i].ver && !e[i].paused && m[i].ver == committed))
/* 8: nothing torn serves. One case can't be helped, see README.md: a load that reaches a process which nobody has seen
 * yet, and which isn't paused. It ends with the pause that follows the next reading. */
#define NOT_TORN(i) (e[i].weights != TORN || e[i].paused || e[i].down || e[i].stray)
/* 6: the intent is on the disk before the call goes out; a resume follows from a decision that is. */
#define INTENDED(i) (crashes == 0 || !CHANGES(m[i].step) || m[i].step == RESUME || d[i].earlier)
/* The end of a step: its records are on the disk before its effects, where one of them asks for that. */
inline close() {
  if
  :: group -> flush()
  :: else
  fi;
  group = 0;
  HOLDS(1, READY_IS_RIGHT(0));
  HOLDS(1, READY_IS_RIGHT(1));
  HOLDS(8, NOT_TORN(0));
  HOLDS(8, NOT_TORN(1));
  HOLDS(6, INTENDED(0));
  HOLDS(6, INTENDED(1))
}

/* --- calls */
/* 5: nothing is sent while something else may still take effect there. */
#define ALONE(i) (e[i].late == C_NONE)
inline call(i, s) {
  HOLDS(5, ALONE(i));
  m[i].step = s;
  group = (group || !EFFECT_BEFORE_RECORD)
}
inline call_pause(i, s) {
  m[i].held = m[i].pbu;
  m[i].pbu = 1;
  m[i].psr = 1;
  call(i, s)
}
/* In flight to memory: what the engine does with the call that step s stands for. */
#define GOAL ((phase == RESUMING || HEAL_TO_NEW) -> version : committed)
#define CALL_OF(i, s) \
  ((s) == PAUSING || (s) == H_PAUSE || (s) == FENCE || (s) == WATCH_PAUSE -> C_PAUSE : \
   ((s) == RESUME -> C_RESUME : \
    ((s) == LABEL || (s) == H_LABEL -> C_LABEL(LOADING) : \
     ((s) == FORMER -> C_LABEL(m[i].ver) : \
      ((s) == LOAD -> C_LOAD(version) : ((s) == H_LOAD -> C_LOAD(GOAL) : C_NONE))))))

inline execute(i, c) {
  if
  :: c == C_PAUSE -> e[i].paused = 1; e[i].stray = 0
  :: c == C_RESUME ->
     HOLDS(8, m[i].inc != e[i].inc || e[i].weights != TORN);
     e[i].paused = 0
  :: c >= 8 -> e[i].label = c - 8
  :: c >= 4 && c < 8 ->
     HOLDS(5, m[i].inc != e[i].inc || e[i].paused); /* a load into a running engine mixes versions */
     e[i].weights = c - 4;
     e[i].stray = 0;
     e[i].label = c - 4
  fi
}
inline tear(i) {
  HOLDS(5, m[i].inc != e[i].inc || e[i].paused);
  e[i].weights = TORN;
  e[i].stray = !e[i].paused
}
/* The answer is lost, or not waited for any longer: the call stays on its way. */
inline give_up(i) {
  if
  :: CHANGES(m[i].step) ->
     m[i].earlier = 1;
     if
     :: !e[i].down -> e[i].late = CALL_OF(i, m[i].step)
     :: else
     fi
  :: else
  fi
}
/* note_ended of a pause that had no effect */
inline pause_failed(i) { m[i].pbu = m[i].held }

/* survey.cpp observe(); `seen_new` tells whether another process answers */
#define IS_NEW(i) (m[i].inc != e[i].inc)
inline observe(i) {
  if
  :: IS_NEW(i) -> SEEN;
     m[i].inc = e[i].inc;
     m[i].moved = (phase >= PAUSE_ALL);
     m[i].earlier = 0;
     m[i].pbu = (e[i].paused && m[i].psr);
     m[i].ver = NOBODYS;
     m[i].st = JOINING;
     m[i].wc = RESTARTED
  :: else
  fi;
  m[i].psr = 0
}

/* --- resume.cpp */
inline quarantine(i, c, in_time) {
  m[i].tc = c;
  m[i].wc = m[i].tc;
  m[i].st = QUARANTINED;
  due = 1;
  if
  :: !m[i].earlier && m[i].wc != UNREACHABLE && in_time && !m[i].paused && !m[i].was_paused -> call_pause(i, FENCE)
  :: else ->
     m[i].step = DONE;
     m[i].intended = 0;
     group = 1 /* the fence hook waits for its record */
  fi
}
inline start_resume(i) {
  HOLDS(8, RESUME_UNKNOWN || m[i].verdict == UNTOUCHED || m[i].verdict == VERIFIED);
  m[i].st = BUSY;
  if
  :: m[i].pause_sent && !m[i].was_paused && (m[i].paused || m[i].pbu) ->
     HOLDS(5, ALONE(i));
     m[i].resume_sent = 1;
     m[i].step = RESUME
  :: else -> m[i].step = CHECK
  fi
}
inline start_former(i) {
  if
  :: !m[i].former_ready -> quarantine(i, (m[i].fc == NO_CAUSE -> RESTARTED : m[i].fc), 1)
  :: m[i].former_ready && !m[i].label_changed -> start_resume(i)
  :: else -> call(i, FORMER)
  fi
}
inline start_heal(i) {
  m[i].st = BUSY;
  m[i].step = H_READ
}
#define HAS_GOOD (!no_last_good || committed > 0)
inline heal_or_quarantine(i) {
  if
  :: HAS_GOOD -> start_heal(i)
  :: else -> quarantine(i, OTHER, 1)
  fi
}
inline catch_up(i) {
  if
  :: m[i].earlier -> quarantine(i, (m[i].tc == NO_CAUSE -> OTHER : m[i].tc), 1)
  :: else ->
     m[i].caught_up = 1;
     start_heal(i)
  fi
}
inline start_barrier(i) { m[i].step = BARRIER_A }
inline fail_heal(i, c, verd) {
  if
  :: m[i].verdict != UNKNOWN -> m[i].verdict = verd
  :: else
  fi;
  quarantine(i, c, 1)
}
inline mark_ready(i) {
  m[i].intended = 0;
  HOLDS(2, m[i].inc == e[i].inc); /* READY only after a read of this process */
  m[i].step = DONE;
  m[i].st = READY;
  m[i].wc = NO_CAUSE;
  m[i].pbu = 0;
  due = 1
}
/* load.cpp judge() */
inline judge_it(i, verd, c) {
  m[i].step = JUDGED;
  m[i].intended = 0;
  m[i].verdict = verd;
  m[i].tc = c;
  due = 1
}
inline loaded(i) {
  m[i].verdict = LOADED;
  if
  :: COMMIT_UNVERIFIED ->
     m[i].ver = version;
     judge_it(i, VERIFIED, NO_CAUSE)
  :: else -> m[i].step = VERIFY
  fi
}
inline lose_before_load(i, verd, c) {
  judge_it(i, verd, c);
  m[i].out = 1
}

/* --- recover.cpp */
#define MOVED(i) (m[i].moved && !RESTART_FORGOTTEN)
inline recovered_reading(i) {
  m[i].recovered = 0;
  if
  :: phase == RESUMING -> /* forward() */
     if
     :: TRUST_LABEL && e[i].label == version -> m[i].verdict = VERIFIED; m[i].ver = version
     :: else
     fi;
     if
     :: m[i].verdict == VERIFIED && e[i].label == version && !MOVED(i) -> start_resume(i)
     :: else ->
        if
        :: m[i].verdict == VERIFIED -> m[i].verdict = TOUCHED
        :: else
        fi;
        catch_up(i)
     fi
  :: else -> /* back() */
     if
     :: MOVED(i) || (m[i].load_sent && m[i].verdict != UNTOUCHED) || (e[i].label == LOADING && HAS_GOOD) ->
        m[i].verdict = UNKNOWN;
        heal_or_quarantine(i)
     :: else ->
        if
        :: e[i].label == LOADING -> m[i].label_changed = 1
        :: else
        fi;
        m[i].verdict = UNTOUCHED;
        start_former(i)
     fi
  fi
}
inline after_barrier(i) { /* on_barrier() */
  m[i].earlier = 0;
  m[i].paused = e[i].paused;
  if
  :: IS_NEW(i) -> SEEN;
     observe(i);
     m[i].verdict = UNKNOWN;
     quarantine(i, RESTARTED, 1)
  :: else ->
     observe(i);
     if
     :: m[i].recovered -> recovered_reading(i)
     :: !m[i].recovered && m[i].resume_sent && (m[i].verdict == VERIFIED || !m[i].load_sent) ->
        if
        :: m[i].paused -> HOLDS(5, ALONE(i)); m[i].step = RESUME
        :: else ->
           m[i].pbu = 0;
           m[i].step = CHECK
        fi
     :: !m[i].recovered && !(m[i].resume_sent && (m[i].verdict == VERIFIED || !m[i].load_sent)) && m[i].load_sent ->
        heal_or_quarantine(i)
     :: else ->
        m[i].verdict = UNTOUCHED;
        start_former(i)
     fi
  fi
}

/* --- watch.cpp: what a look at a quarantined worker would lead to; looks that lead to nothing are left out */
#define WATCHED(i) \
  (!due && (phase == IDLE || phase == PREPARING) && m[i].step == NONE && m[i].st == QUARANTINED && !e[i].down)
#define MAY_RUN(i) \
  (!m[i].pbu && (m[i].wc == RESTARTED || m[i].wc == UNREACHABLE) && \
   ((m[i].ver == NOBODYS && e[i].label == 0) || (m[i].ver == committed && e[i].label == committed)))

#define AT(i, s) (!due && m[i].step == s)
#define ANSWERS(i, s) (AT(i, s) && !e[i].down)
#define DEAD(i, s) (AT(i, s) && e[i].down)
#define LOST(i, s) (AT(i, s) && !e[i].down && losses > 0)
/* The connection breaks, or the deadline of the call passes: with a dead process for nothing. */
#define UNANSWERED(i, s) (AT(i, s) && (e[i].down || losses > 0))
inline pay(i) {
  if
  :: e[i].down
  :: else -> losses--
  fi
}
/* The first ask is answered: what was on its way on a reset connection has arrived, behind it, or never will. The second
 * is answered when the queue is empty (engine()). */
#define SECOND_ASK(i, s) (AT(i, s) && !e[i].down && (e[i].late == C_NONE || BARRIER_ONCE))
#define FIRST_ASK(i) \
  (!due && !e[i].down && \
   (m[i].step == SURVEY_A || m[i].step == ASK_A || m[i].step == BARRIER_A || m[i].step == WATCH_A))

proctype conductor(byte i) {
end:
  do
  /* a barrier's first ask */
  :: d_step { FIRST_ASK(i) -> SEEN; m[i].step = m[i].step + 1 }
  :: d_step { FIRST_ASK(i) && e[i].late != C_NONE -> SEEN; e[i].late = C_NONE; m[i].step = m[i].step + 1 }

  /* --- PAUSING: the survey */
  :: d_step { ANSWERS(i, SURVEY) || SECOND_ASK(i, SURVEY_B) -> SEEN;
       if
       :: m[i].step == SURVEY_B -> m[i].earlier = 0
       :: else
       fi;
       observe(i);
       if
       :: m[i].st == JOINING && m[i].pbu && !JOINS_PAUSED -> m[i].st = QUARANTINED /* it got its predecessor's pause */
       :: else
       fi;
       m[i].step = SURVEYED;
       m[i].was_paused = (e[i].paused && !m[i].pbu);
       m[i].paused = e[i].paused;
       due = 1;
       close() }
  :: d_step { UNANSWERED(i, SURVEY) || UNANSWERED(i, SURVEY_A) || UNANSWERED(i, SURVEY_B) -> SEEN;
       pay(i);
       m[i].step = SURVEYED;
       m[i].tc = UNREACHABLE;
       m[i].out = 1;
       due = 1 }
  :: d_step { ANSWERS(i, PAUSING) -> SEEN;
       execute(i, C_PAUSE);
       m[i].step = PAUSED;
       m[i].paused = 1;
       due = 1;
       close() }
  :: d_step { DEAD(i, PAUSING) -> SEEN;
       pause_failed(i);
       lose_before_load(i, UNTOUCHED, UNREACHABLE) }
  :: d_step { UNANSWERED(i, PAUSING) -> SEEN;
       pay(i);
       give_up(i);
       lose_before_load(i, UNKNOWN, OTHER) }

  /* --- LOADING, VERIFYING */
  :: d_step { ANSWERS(i, LABEL) -> SEEN;
       execute(i, C_LABEL(LOADING));
       HOLDS(5, ALONE(i));
       m[i].load_sent = 1;
       m[i].step = LOAD; /* its intent went with the label's */
       close() }
  :: d_step { DEAD(i, LABEL) -> SEEN;
       m[i].label_changed = 0;
       lose_before_load(i, UNTOUCHED, UNREACHABLE) }
  :: d_step { UNANSWERED(i, LABEL) -> SEEN;
       pay(i);
       give_up(i);
       lose_before_load(i, UNKNOWN, OTHER) }
  :: d_step { ANSWERS(i, LOAD) -> SEEN;
       execute(i, C_LOAD(version));
       loaded(i);
       close() }
  :: d_step { ANSWERS(i, LOAD) && bad > 0 -> SEEN; /* refused */
       bad--;
       judge_it(i, UNTOUCHED, OTHER) }
  :: d_step { ANSWERS(i, LOAD) && bad > 0 -> SEEN; /* failed half way, and says so */
       bad--;
       tear(i);
       judge_it(i, TOUCHED, OTHER);
       close() }
  :: d_step { ANSWERS(i, LOAD) && bad > 0 -> SEEN; /* failed half way, and says that it did not */
       bad--;
       tear(i);
       e[i].label = version;
       loaded(i);
       close() }
  :: d_step { DEAD(i, LOAD) -> SEEN; lose_before_load(i, UNTOUCHED, UNREACHABLE) }
  :: d_step { UNANSWERED(i, LOAD) && !m[i].asked -> SEEN; /* the connection was lost: what does it hold? */
       pay(i);
       give_up(i);
       m[i].asked = 1;
       m[i].tc = OTHER;
       m[i].step = ASK_A }
  :: d_step { UNANSWERED(i, LOAD) -> SEEN; /* the time ran out */
       pay(i);
       give_up(i);
       judge_it(i, UNKNOWN, OTHER) }
  :: d_step { SECOND_ASK(i, ASK_B) -> SEEN;
       m[i].earlier = 0;
       if
       :: IS_NEW(i) -> SEEN;
          observe(i);
          m[i].paused = e[i].paused;
          judge_it(i, UNKNOWN, RESTARTED)
       :: else ->
          observe(i);
          if
          :: e[i].label == version -> loaded(i)
          :: else -> m[i].intended = 1; call(i, LOAD)
          fi
       fi;
       close() }
  :: d_step { UNANSWERED(i, ASK_A) || UNANSWERED(i, ASK_B) -> SEEN;
       pay(i);
       judge_it(i, UNKNOWN, (e[i].down -> UNREACHABLE : OTHER)) }
  :: d_step { ANSWERS(i, VERIFY) -> SEEN;
       if
       :: IS_NEW(i) -> SEEN;
          observe(i);
          m[i].paused = e[i].paused;
          judge_it(i, UNKNOWN, RESTARTED)
       :: else ->
          observe(i);
          HOLDS(5, e[i].paused); /* nobody but us continues it in this model: it can't have run since */
          if
          :: e[i].weights == version ->
             m[i].ver = version;
             judge_it(i, VERIFIED, NO_CAUSE)
          :: else -> judge_it(i, TOUCHED, OTHER)
          fi
       fi;
       close() }
  :: d_step { DEAD(i, VERIFY) -> SEEN; judge_it(i, UNKNOWN, UNREACHABLE) }
  :: d_step { LOST(i, VERIFY) -> SEEN; losses--; judge_it(i, LOADED, OTHER) }

  /* --- RESUMING, RESTORING */
  :: d_step { SECOND_ASK(i, BARRIER_B) -> SEEN; after_barrier(i); close() }
  :: d_step { DEAD(i, BARRIER_A) || DEAD(i, BARRIER_B) -> SEEN;
       if
       :: ASKS_FOR_EVER -> m[i].step = (m[i].step == BARRIER_A -> BARRIER_B : BARRIER_A)
       :: else -> quarantine(i, UNREACHABLE, 1)
       fi;
       close() }
  :: d_step { ANSWERS(i, FORMER) -> SEEN;
       execute(i, C_LABEL(m[i].ver));
       m[i].label_changed = 0;
       start_resume(i);
       close() }
  :: d_step { DEAD(i, FORMER) -> SEEN; /* nothing was sent */
       if
       :: HAS_GOOD -> start_heal(i)
       :: else -> quarantine(i, OTHER, 1)
       fi;
       close() }
  :: d_step { UNANSWERED(i, FORMER) -> SEEN;
       pay(i);
       give_up(i);
       quarantine(i, OTHER, 1);
       close() }
  :: d_step { ANSWERS(i, RESUME) -> SEEN;
       /* What we resume is what is committed. A process that nobody has seen yet runs anyhow. */
       HOLDS(1, m[i].inc != e[i].inc || e[i].weights == committed);
       execute(i, C_RESUME);
       m[i].pbu = 0;
       m[i].paused = 0;
       if
       :: READY_WITHOUT_READ -> mark_ready(i)
       :: else -> m[i].step = CHECK
       fi;
       close() }
  /* One that is down is asked again until it is back, or until the deadline. */
  :: d_step { UNANSWERED(i, RESUME) -> SEEN;
       pay(i);
       give_up(i);
       start_barrier(i) }
  :: d_step { ANSWERS(i, CHECK) -> SEEN;
       if
       :: IS_NEW(i) -> SEEN;
          observe(i);
          m[i].paused = e[i].paused;
          m[i].verdict = UNKNOWN;
          quarantine(i, RESTARTED, 1)
       :: else ->
          observe(i);
          mark_ready(i) /* if it still reads as paused, too, after three times: kChecksPaused */
       fi;
       close() }
  :: d_step { DEAD(i, CHECK) -> SEEN; quarantine(i, UNREACHABLE, 1); close() }
  :: d_step { (ANSWERS(i, FENCE) || ANSWERS(i, WATCH_PAUSE)) -> SEEN;
       execute(i, C_PAUSE);
       due = (m[i].step == FENCE);
       m[i].step = (m[i].step == FENCE -> DONE : NONE);
       close() }
  :: d_step { (DEAD(i, FENCE) || DEAD(i, WATCH_PAUSE)) -> SEEN;
       pause_failed(i);
       due = (m[i].step == FENCE);
       m[i].step = (m[i].step == FENCE -> DONE : NONE) }
  :: d_step { (UNANSWERED(i, FENCE) || UNANSWERED(i, WATCH_PAUSE)) -> SEEN;
       pay(i);
       give_up(i);
       due = (m[i].step == FENCE);
       m[i].step = (m[i].step == FENCE -> DONE : NONE) }

  /* --- a heal */
  :: d_step { ANSWERS(i, H_READ) -> SEEN;
       observe(i);
       m[i].paused = e[i].paused;
       m[i].was_paused = (m[i].was_paused && m[i].paused && !m[i].pbu);
       m[i].pause_sent = (m[i].pause_sent || m[i].pbu);
       m[i].st = BUSY;
       if
       :: m[i].paused -> m[i].label_changed = 1; call(i, H_LABEL)
       :: else -> m[i].pause_sent = 1; call_pause(i, H_PAUSE)
       fi;
       close() }
  :: d_step { ANSWERS(i, H_PAUSE) -> SEEN;
       execute(i, C_PAUSE);
       m[i].paused = 1;
       m[i].label_changed = 1;
       call(i, H_LABEL);
       close() }
  :: d_step { ANSWERS(i, H_LABEL) -> SEEN;
       execute(i, C_LABEL(LOADING));
       m[i].load_sent = 1;
       m[i].intended = 1;
       call(i, H_LOAD);
       close() }
  :: d_step { ANSWERS(i, H_LOAD) -> SEEN;
       goal = GOAL;
       execute(i, C_LOAD(goal));
       m[i].step = H_VERIFY;
       close() }
  :: d_step { ANSWERS(i, H_LOAD) && bad > 0 -> SEEN;
       bad--;
       tear(i);
       fail_heal(i, OTHER, TOUCHED);
       close() }
  :: d_step { ANSWERS(i, H_VERIFY) -> SEEN;
       if
       :: IS_NEW(i) -> SEEN;
          observe(i);
          m[i].paused = e[i].paused;
          m[i].verdict = UNKNOWN;
          quarantine(i, RESTARTED, 1)
       :: else ->
          observe(i);
          if
          :: e[i].weights == GOAL ->
             m[i].verdict = VERIFIED;
             m[i].ver = GOAL;
             start_resume(i)
          :: else -> fail_heal(i, OTHER, TOUCHED)
          fi
       fi;
       close() }
  :: d_step { DEAD(i, H_READ) || DEAD(i, H_VERIFY) -> SEEN; fail_heal(i, UNREACHABLE, TOUCHED); close() }
  :: d_step { DEAD(i, H_PAUSE) || DEAD(i, H_LABEL) || DEAD(i, H_LOAD) -> SEEN;
       if
       :: m[i].step == H_PAUSE -> pause_failed(i)
       :: else
       fi;
       fail_heal(i, UNREACHABLE, TOUCHED);
       close() }
  :: d_step { UNANSWERED(i, H_PAUSE) || UNANSWERED(i, H_LABEL) || UNANSWERED(i, H_LOAD) -> SEEN;
       pay(i);
       give_up(i);
       fail_heal(i, OTHER, UNKNOWN);
       close() }

  /* --- between updates */
  :: d_step { WATCHED(i) && m[i].earlier -> SEEN; m[i].step = WATCH_A }
  :: d_step { SECOND_ASK(i, WATCH_B) -> SEEN; m[i].earlier = 0; m[i].step = NONE }
  :: d_step { (AT(i, WATCH_A) || AT(i, WATCH_B)) && e[i].down -> SEEN; m[i].step = NONE }
  :: d_step { WATCHED(i) && !m[i].earlier && IS_NEW(i) -> SEEN;
       observe(i);
       if
       :: m[i].pbu -> m[i].st = QUARANTINED; m[i].wc = RESTARTED; group = 1
       :: else
       fi;
       close() }
  :: d_step { WATCHED(i) && !m[i].earlier && !IS_NEW(i) && !e[i].paused && !MAY_RUN(i) && !BLIND_WATCH -> SEEN;
       observe(i);
       call_pause(i, WATCH_PAUSE);
       close() }
  od
}

/* --- decisions over all workers */
#define TARGET(i) (m[i].step != NONE)
#define MEMBER(i) (!m[i].extra)
#define NEEDED(members, lost) (all_asked -> ((members) + (lost) > 0 -> (members) + (lost) : 1) : 1) /* half of one or two */
#define MEMBERS (((MEMBER(0) && !m[0].out) -> 1 : 0) + ((MEMBER(1) && !m[1].out) -> 1 : 0))
#define LOST_ONES (((MEMBER(0) && m[0].out) -> 1 : 0) + ((MEMBER(1) && m[1].out) -> 1 : 0))
#define OPEN(i) (!m[i].out && m[i].step != JUDGED)
#define HOPEFUL(i) (MEMBER(i) && !m[i].out && (m[i].verdict == VERIFIED || m[i].step != JUDGED))

inline forget_target(i) {
  m[i].step = NONE;
  m[i].verdict = 0;
  m[i].tc = 0;
  m[i].out = 0;
  m[i].extra = 0;
  m[i].load_sent = 0;
  m[i].intended = 0;
  m[i].label_changed = 0;
  m[i].pause_sent = 0;
  m[i].was_paused = 0;
  m[i].paused = 0;
  m[i].resume_sent = 0;
  m[i].moved = 0;
  m[i].recovered = 0;
  m[i].caught_up = 0;
  m[i].asked = 0;
  m[i].former_ready = 0;
  m[i].fc = 0;
  m[i].held = 0
}
/* 7: none is merely paused by us. */
#define NOT_STRANDED(i) \
  (m[i].st == QUARANTINED || m[i].st == JOINING || \
   (m[i].st == READY && (!e[i].paused || IS_NEW(i) || e[i].down)))
inline end_update(ok, is_committed) {
  HOLDS(7, NOT_STRANDED(0));
  HOLDS(7, NOT_STRANDED(1));
  HOLDS(11, !(ok) || committed == version);
  HOLDS(11, (is_committed) == (committed == version)); /* what an error says */
  told_not_committed = !(is_committed);
  forget_target(0);
  forget_target(1);
  phase = IDLE;
  group = 1 /* the answer waits for update_ended */
}
inline leave_out(i) {
  m[i].step = DONE;
  m[i].verdict = (m[i].st == READY -> UNTOUCHED : UNKNOWN);
  m[i].wc = (m[i].st == QUARANTINED -> m[i].wc : UNREACHABLE);
  m[i].st = QUARANTINED
}
inline fix_member(i, any_ready) {
  m[i].former_ready = (m[i].st == READY);
  m[i].fc = m[i].wc;
  m[i].extra = (m[i].st != READY && any_ready)
}
inline pause_one(i) {
  if
  :: m[i].out -> leave_out(i)
  :: !m[i].out && m[i].was_paused -> m[i].step = PAUSED; m[i].st = BUSY
  :: else -> m[i].pause_sent = 1; m[i].st = BUSY; m[i].step = PAUSING; HOLDS(5, ALONE(i));
     m[i].held = m[i].pbu; m[i].pbu = 1; m[i].psr = 1
  fi
}
#define ANY_READY ((!m[0].out && m[0].st == READY) || (!m[1].out && m[1].st == READY))
inline survey_done() {
  if
  :: ANY_READY -> fix_member(0, 1); fix_member(1, 1)
  :: else -> fix_member(0, 0); fix_member(1, 0)
  fi;
  if
  :: MEMBERS == 0 || MEMBERS < NEEDED(MEMBERS, LOST_ONES) ->
     if
     :: m[0].out -> leave_out(0)
     :: else
     fi;
     if
     :: m[1].out -> leave_out(1)
     :: else
     fi;
     end_update(0, 0)
  :: else ->
     pause_one(0);
     pause_one(1);
     phase = PAUSE_ALL;
     group = 1 /* targets and intents: one group */
  fi
}
inline launch(i) {
  if
  :: m[i].step == PAUSED -> m[i].label_changed = 1; m[i].intended = 1; call(i, LABEL)
  :: else
  fi
}
inline restore_target(i) {
  if
  :: m[i].step == DONE
  :: m[i].step != DONE && m[i].earlier -> start_barrier(i)
  :: m[i].step != DONE && !m[i].earlier && (m[i].tc == UNREACHABLE || m[i].tc == RESTARTED) ->
     quarantine(i, m[i].tc, 1)
  :: m[i].step != DONE && !m[i].earlier && m[i].tc != UNREACHABLE && m[i].tc != RESTARTED ->
     if
     :: m[i].verdict == UNTOUCHED -> start_former(i)
     :: m[i].verdict != UNTOUCHED && RESUME_UNKNOWN -> start_resume(i)
     :: else -> heal_or_quarantine(i)
     fi
  fi
}
inline begin_restoring() {
  phase = RESTORING;
  give_up(0);
  give_up(1);
  if
  :: BARRIER_SKIPPED -> m[0].earlier = 0; m[1].earlier = 0
  :: else
  fi;
  restore_target(0);
  restore_target(1);
  due = 1
}
inline go_on_after_commit(i) {
  if
  :: m[i].step == JUDGED && m[i].verdict == VERIFIED -> start_resume(i)
  :: m[i].step == JUDGED && m[i].verdict != VERIFIED -> catch_up(i)
  :: else
  fi
}
inline evaluate() {
  if
  :: (HOPEFUL(0) -> 1 : 0) + (HOPEFUL(1) -> 1 : 0) < NEEDED(MEMBERS, LOST_ONES) -> begin_restoring()
  :: else ->
     launch(0);
     launch(1);
     if
     :: !OPEN(0) && !OPEN(1) ->
        phase = COMMITTING; /* verdicts and commit: one group, on its way to the disk */
        if
        :: RESUME_BEFORE_COMMIT -> go_on_after_commit(0); go_on_after_commit(1)
        :: else
        fi
     :: else
     fi
  fi
}
#define SERVES(i) (m[i].st == READY && m[i].ver == version)
#define COUNTS(i) (MEMBER(i) && (!m[i].out || all_asked))
inline finish_resuming() {
  if
  :: (COUNTS(0) && SERVES(0) -> 1 : 0) + (COUNTS(1) && SERVES(1) -> 1 : 0) >=
         (all_asked -> ((COUNTS(0) -> 1 : 0) + (COUNTS(1) -> 1 : 0)) : 1) ->
     HOLDS(11, SERVES(0) || SERVES(1)); /* the quorum is READY */
     HOLDS(11, !all_asked || ((SERVES(0) || m[0].extra) && (SERVES(1) || m[1].extra)));
     end_update(1, 1)
  :: else -> end_update(0, 1)
  fi
}
inline get(i) {
  m[i].st = d[i].st;
  m[i].ver = d[i].ver;
  m[i].wc = d[i].wc;
  m[i].pbu = d[i].pbu;
  m[i].psr = d[i].pbu; /* a reading that cleared it left no record */
  m[i].earlier = d[i].earlier;
  m[i].inc = d[i].inc;
  m[i].held = 0;
  m[i].verdict = d[i].verdict;
  m[i].tc = d[i].tc;
  m[i].out = d[i].out;
  m[i].extra = d[i].extra;
  m[i].load_sent = d[i].load_sent;
  m[i].intended = 0;
  m[i].label_changed = d[i].label_changed;
  m[i].pause_sent = d[i].pause_sent;
  m[i].was_paused = d[i].was_paused;
  m[i].paused = 0;
  m[i].resume_sent = d[i].resume_sent;
  m[i].moved = d[i].moved;
  m[i].recovered = 0;
  m[i].caught_up = 0;
  m[i].asked = 0;
  m[i].former_ready = d[i].former_ready;
  m[i].fc = d[i].fc;
  m[i].step = (disk_phase == 3 -> (d[i].done -> DONE : JUDGED) : NONE)
}
inline take_over(i) {
  if
  :: m[i].step != DONE ->
     m[i].st = BUSY;
     m[i].recovered = 1;
     m[i].caught_up = (phase == RESUMING && m[i].verdict != VERIFIED);
     m[i].earlier = (m[i].earlier || !RESUME_FORGOTTEN); /* a resume's intent is not awaited, and may be lost */
     start_barrier(i)
  :: else
  fi
}
#define FORWARD (committed == version && !COMMIT_FORGOTTEN)
inline clear_disk(i) { /* nobody will read it: as little as possible is left to tell states apart */
  d[i].st = 0; d[i].ver = 0; d[i].wc = 0; d[i].pbu = 0; d[i].earlier = 0; d[i].inc = 0; d[i].done = 0;
  d[i].verdict = 0; d[i].tc = 0; d[i].out = 0; d[i].extra = 0; d[i].load_sent = 0; d[i].label_changed = 0;
  d[i].pause_sent = 0; d[i].was_paused = 0; d[i].resume_sent = 0; d[i].moved = 0; d[i].former_ready = 0; d[i].fc = 0
}
inline die_and_start_again() {
  crashes--;
  give_up(0);
  give_up(1);
  get(0);
  get(1);
  if
  :: crashes == 0 -> clear_disk(0); clear_disk(1)
  :: else
  fi;
  if
  :: disk_phase == 0 -> phase = IDLE
  :: disk_phase == 1 || disk_phase == 2 -> end_update(0, 0) /* ABORTED; or ROLLED_BACK with nobody to bring back */
  :: disk_phase == 3 ->
     phase = (FORWARD -> RESUMING : RESTORING);
     take_over(0);
     take_over(1);
     due = 1
  fi
}
/* The restore deadline: nothing more is sent. */
inline out_of_time(i) {
  if
  :: m[i].step != DONE ->
     give_up(i);
     quarantine(i, OTHER, 0)
  :: else
  fi
}
#define PENDING(i) (m[i].step != DONE)
/* The resume deadline: who waits for its resume is given up; who is being caught up has the restore deadline. */
#define RESUME_WAITS(i) \
  (!m[i].caught_up && (m[i].step == RESUME || m[i].step == CHECK || m[i].step == BARRIER_A || \
                       m[i].step == BARRIER_B || m[i].step == FORMER))
inline resume_out_of_time(i) {
  if
  :: RESUME_WAITS(i) ->
     give_up(i);
     quarantine(i, OTHER, 1)
  :: else
  fi
}
inline take_worker(i) { /* yield_watch(), begin_survey() */
  give_up(i);
  m[i].held = 0;
  m[i].step = (m[i].earlier -> SURVEY_A : SURVEY)
}

proctype gateway() {
end:
  do
  :: d_step { due && phase == SURVEYING -> SEEN;
       due = 0;
       if
       :: m[0].step == SURVEYED && m[1].step == SURVEYED -> survey_done()
       :: else
       fi;
       close() }
  :: d_step { due && phase == PAUSE_ALL -> SEEN;
       due = 0;
       if
       :: m[0].step == PAUSING || m[1].step == PAUSING
       :: m[0].step != PAUSING && m[1].step != PAUSING ->
          if
          :: MEMBERS > 0 && (!all_asked || LOST_ONES == 0) -> phase = LOAD_ALL; evaluate()
          :: else ->
             if
             :: PAUSE_STRANDS -> end_update(0, 0)
             :: else -> begin_restoring()
             fi
          fi
       fi;
       close() }
  :: d_step { due && phase == LOAD_ALL -> SEEN; due = 0; evaluate(); close() }
  :: d_step { due && (phase == RESUMING || phase == RESTORING) -> SEEN;
       due = 0;
       if
       :: m[0].step == DONE && m[1].step == DONE ->
          if
          :: phase == RESUMING -> finish_resuming()
          :: else -> end_update(0, 0)
          fi
       :: else
       fi;
       close() }

  :: d_step { !due && phase == IDLE && updates_left > 0 -> SEEN;
       updates_left--;
       version = version + 1;
       told_not_committed = 0;
       phase = PREPARING;
       group = 1;
       close() }
  :: d_step { !due && phase == PREPARING -> SEEN; /* saved and sealed */
       phase = SURVEYING;
       take_worker(0);
       take_worker(1);
       close() }
  :: d_step { !due && phase == COMMITTING -> SEEN;
       HOLDS(4, version > committed);
       HOLDS(11, !told_not_committed);
       HOLDS(3, m[0].verdict == VERIFIED || m[1].verdict == VERIFIED);
       HOLDS(3, m[0].verdict != VERIFIED || IS_NEW(0) || e[0].down || e[0].weights == version);
       HOLDS(3, m[1].verdict != VERIFIED || IS_NEW(1) || e[1].down || e[1].weights == version);
       flush();
       committed = version;
       phase = RESUMING;
       go_on_after_commit(0);
       go_on_after_commit(1);
       due = 1;
       close() }
  /* held records go to the disk by themselves */
  :: d_step { !due && crashes > 0 && (DIFFERS(0) || DIFFERS(1)) -> SEEN; flush() }

  /* faults */
  :: d_step { !due && crashes > 0 -> SEEN; die_and_start_again(); close() }
  :: d_step { !due && losses > 0 && (phase == PAUSE_ALL || phase == LOAD_ALL) -> SEEN; /* cancel; the whole deadline */
       losses--;
       begin_restoring();
       close() }
  :: d_step { !due && losses > 0 && (phase == RESUMING || phase == RESTORING) && (PENDING(0) || PENDING(1)) -> SEEN;
       losses--;
       out_of_time(0);
       out_of_time(1);
       close() }
  :: d_step { !due && losses > 0 && phase == RESUMING && (RESUME_WAITS(0) || RESUME_WAITS(1)) -> SEEN;
       losses--;
       resume_out_of_time(0);
       resume_out_of_time(1);
       close() }
  od
}

inline die(i) {
  restarts--;
  e[i].down = 1;
  e[i].inc = 1;
  e[i].late = C_NONE; /* what was sent to a process goes with it */
  e[i].paused = 0;
  e[i].weights = 0;
  e[i].label = 0;
  e[i].stray = 0
}
proctype engine(byte i) {
end:
  do
  :: d_step { !due && e[i].late != C_NONE -> SEEN; execute(i, e[i].late); e[i].late = C_NONE; close() }
  :: d_step { !due && restarts > 0 && !e[i].down -> SEEN; die(i) }
  :: d_step { !due && restarts > 0 && !e[i].down -> SEEN; die(i); e[i].gone = 1 }
  :: d_step { !due && e[i].down && !e[i].gone -> SEEN; e[i].down = 0; close() }
  od
}

/* 16, 17: when nothing can move any more, all updates have ended and each worker serves or is quarantined. */
#define AT_REST(i) \
  (e[i].down || IS_NEW(i) || (m[i].st == READY && !e[i].paused && e[i].weights == committed) || \
   (m[i].st == QUARANTINED && (e[i].paused || MAY_RUN(i))) || (m[i].st == JOINING && !e[i].paused))
#define ALL_ENDED (phase == IDLE && updates_left == 0)

proctype judge() {
  timeout;
  HOLDS(16, ALL_ENDED && m[0].step == NONE && m[1].step == NONE);
  HOLDS(17, AT_REST(0));
  HOLDS(17, AT_REST(1))
}

init {
  atomic {
    c_code {
      atexit(tell_seen);
      now.updates_left = knob("UPDATES", 1);
      now.crashes = knob("CRASHES", 1);
      now.losses = knob("LOSSES", 1);
      now.restarts = knob("RESTARTS", 1);
      now.bad = knob("BAD", 1);
      now.all_asked = knob("ALL", 0);
      now.no_last_good = knob("NO_LAST_GOOD", 0);
      now.mistake = knob("MISTAKE", 0);
    };
    do
    :: crashes > 0 -> crashes--
    :: losses > 0 -> losses--
    :: restarts > 0 -> restarts--
    :: bad > 0 -> bad--
    :: break
    od;
    if
    :: crashes > 0 -> put(0); put(1)
    :: else
    fi;
    run conductor(0);
    run conductor(1);
    run engine(0);
    run engine(1);
    run gateway();
    run judge()
  }
}

ltl ends { <>[] (phase == IDLE && updates_left == 0 && AT_REST(0) && AT_REST(1)) }
