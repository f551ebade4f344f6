//! The meaning of a refusal by slurmrestd, or of an answer of something else, in our words.

use std::time::Duration;

use hyper::StatusCode;
use slurm_snapshot::{Stage, errno as slurm};

use crate::decode;
use crate::problem::RestProblem;

/// Time within which slurmrestd refuses a credential. It does so at once, but waits at least 9 s
/// for a slurmctld that does not answer.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Explains an answer with a status other than 200 and 404. `took` is the time until it came.
pub(crate) fn refused(
    status: StatusCode,
    body: &[u8],
    took: Duration,
    has_token: bool,
    is_socket: bool,
) -> RestProblem {
    let number = status.as_u16();
    let errno = decode::read_answer(body, ()).ok().and_then(|envelope| envelope.error);
    let contains = |word: &[u8]| body.windows(word.len()).any(|part| part == word);
    let status_line = format!("slurmrestd answers {number}");
    if status.is_redirection() {
        let text = format!(
            "{number}, a redirection, which is not followed because it could send the token \
                elsewhere"
        );
        return RestProblem::new(Stage::Http, text);
    }
    // 22.05 gives the same answer for a refused credential and for a slurmctld that is down; only
    // the time differs.
    let is_unclear = number == 500 && matches!(errno, Some(0 | slurm::ERROR)) && took < AT_ONCE;
    let is_credential = matches!(number, 401 | 403 | 407 | 511)
        || errno == Some(slurm::PROTOCOL_AUTHENTICATION_ERROR);
    if is_credential || (is_unclear && has_token) || (number == 500 && contains(b"uthentication")) {
        let text = match (has_token, is_socket) {
            (true, _) => format!("{status_line}: it rejects the token"),
            (false, true) => {
                format!("{status_line}: on its socket it admits only root and its own user")
            }
            (false, false) => format!("{status_line}: it needs a token"),
        };
        return RestProblem { stage: Stage::Token, errno: errno.unwrap_or(0), text };
    }
    match errno {
        Some(errno) => explain(errno, &status_line),
        // slurmrestd's own errors are JSON.
        None if matches!(number, 502..=504) => RestProblem::new(
            Stage::Connect,
            format!("the proxy in front of slurmrestd answers {number}: slurmrestd is down"),
        ),
        None => {
            let text =
                format!("{number} with {} bytes that are not a response of slurmrestd", body.len());
            RestProblem::new(Stage::Http, text)
        }
    }
}

/// Explains Slurm's own error in an answer, in our words: the program that answers may be anything,
/// and may repeat the request's token.
pub(crate) fn explain(errno: i32, before: &str) -> RestProblem {
    let stage =
        if errno == slurm::PROTOCOL_AUTHENTICATION_ERROR { Stage::Token } else { Stage::Slurmctld };
    let text = match slurm_error(errno) {
        Some(meaning) => format!("{before}, Slurm's error {errno}: {meaning}"),
        None if matches!(errno, 0 | slurm::ERROR) => {
            format!("{before}, an error that Slurm does not specify")
        }
        None => format!("{before}, Slurm's error {errno}"),
    };
    RestProblem { stage, errno, text }
}

/// Returns the meaning of an error of slurm_errno.h that slurmctld or slurmrestd may give to these
/// requests; `None` for any other error.
const fn slurm_error(errno: i32) -> Option<&'static str> {
    Some(match errno {
        1001 | slurm::CTLD_COMMUNICATIONS_CONNECTION_ERROR => {
            "slurmrestd cannot connect to slurmctld"
        }
        1002..=1004 | 1801..=1803 => "the connection from slurmrestd to slurmctld failed",
        1005 => "slurmctld does not speak slurmrestd's version of the protocol",
        slurm::PROTOCOL_AUTHENTICATION_ERROR => "authentication failed",
        slurm::CTLD_COMMUNICATIONS_BACKOFF | slurm::CTLD_COMMUNICATIONS_HARD_DROP => {
            "slurmctld is overloaded and refuses requests"
        }
        slurm::ACCESS_DENIED => "slurmctld denies access to this user",
        slurm::IN_STANDBY_MODE => "this slurmctld is a backup on standby",
        2036 | 2037 => "slurmctld does not support this request, or has it disabled",
        slurm::PROTOCOL_SOCKET_IMPL_TIMEOUT => "slurmctld did not answer slurmrestd in time",
        slurm::DB_CONNECTION => "there is no connection to slurmdbd",
        9000 | 9001 | 9009 => "slurmrestd does not understand the request",
        9003 => "slurmrestd has no result",
        9008 => "slurmrestd rejects the credentials",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Envelope;

    /// An answer may repeat the request's header: as a debugging proxy does, or a hostile one.
    #[test]
    fn nothing_of_what_answers_is_in_the_text_of_a_problem_in_whatever_form_it_repeats_the_token() {
        const TOKEN: &str = "eyJhbGciOiJIUzI1NiJ9.\
            eyJleHAiOjE4MDAwMDAwMDAsInN1biI6ImFsaWNlIn0.c2lnbmF0dXJlLW9mLXRoZS1rZXk";
        let signature = TOKEN.rsplit('.').next().unwrap();
        let (half, rest) = TOKEN.split_at(TOKEN.len() / 2);
        let each =
            |between: &str| TOKEN.chars().map(|c| format!("{c}{between}")).collect::<String>();
        let forms = [
            (TOKEN.to_owned(), String::new()),
            (signature.to_owned(), String::new()),
            (half.to_owned(), rest.to_owned()),
            (format!("{}{TOKEN}", "x".repeat(79 - TOKEN.len() % 79)), String::new()),
            (each(" "), String::new()),
            (each("\\n"), String::new()),
            (TOKEN.bytes().map(|byte| format!("%{byte:02x}")).collect(), String::new()),
            (TOKEN.bytes().map(|byte| format!("{byte:02x}")).collect(), String::new()),
            (TOKEN.chars().rev().collect(), String::new()),
            (format!("\\u001b]0;{TOKEN}\\u0007\\n<3>forged"), TOKEN.to_lowercase()),
        ];
        // Our own words have no such piece in common with what was sent.
        let pieces = |text: &str| -> Vec<String> {
            text.as_bytes()
                .windows(6)
                .map(|piece| String::from_utf8_lossy(piece).into_owned())
                .collect()
        };
        for (error, description) in forms {
            let json = format!(
                r#"{{"errors":[{{"error_number":9,"error":"{error}","description":"{description}"}}],
                "statistics":{{}}}}"#
            );
            let wrong = [
                format!(r#"{{"statistics":"{error}{description}"}}"#),
                format!("{error}{description}"),
            ];
            let mut texts: Vec<String> = Vec::new();
            for body in wrong.iter().chain([&json]) {
                for status in [302, 400, 401, 500, 503] {
                    let status = StatusCode::from_u16(status).unwrap();
                    texts.push(refused(status, body.as_bytes(), Duration::ZERO, true, false).text);
                }
                match decode::read_answer(body.as_bytes(), decode::diag::Diag::new(42, true, true))
                {
                    Ok(Envelope { error: Some(errno), .. }) => texts.push(explain(errno, "").text),
                    Ok(_) => panic!("{body} is no reading"),
                    Err(error) => texts.push(decode::complaint(&error)),
                }
            }
            for foreign in pieces(&error).iter().chain(&pieces(&description)) {
                assert!(
                    !texts.iter().any(|text| text.contains(foreign)),
                    "{foreign:?} in {texts:#?}"
                );
            }
        }
    }

    #[test]
    fn what_failed_is_told_apart_as_far_as_an_answer_tells_it() {
        let stage_of = |status: u16, body: &str, seconds, token, socket| {
            let status = StatusCode::from_u16(status).unwrap();
            let problem =
                refused(status, body.as_bytes(), Duration::from_secs(seconds), token, socket);
            (problem.stage, problem.errno)
        };
        let error = |number: i32| {
            format!(r#"{{"errors":[{{"error_number":{number},"error":"x"}}],"statistics":{{}}}}"#)
        };
        for (status, body, seconds, token, socket, expected) in [
            (401, "Authentication failure".to_owned(), 0, false, false, (Stage::Token, 0)),
            (401, String::new(), 0, false, true, (Stage::Token, 0)),
            (
                500,
                "Authentication does not apply to request".to_owned(),
                0,
                false,
                false,
                (Stage::Token, 0),
            ),
            (511, error(1007), 0, true, false, (Stage::Token, 1007)),
            // 22.05.
            (500, error(-1), 0, true, false, (Stage::Token, -1)),
            (500, error(-1), 9, true, false, (Stage::Slurmctld, -1)),
            (500, error(-1), 0, false, true, (Stage::Slurmctld, -1)),
            (502, error(1800), 9, true, false, (Stage::Slurmctld, 1800)),
            (504, error(5004), 10, true, false, (Stage::Slurmctld, 5004)),
            (503, "<html>".to_owned(), 0, true, false, (Stage::Connect, 0)),
            (302, String::new(), 0, true, false, (Stage::Http, 0)),
            (418, "teapot".to_owned(), 0, true, false, (Stage::Http, 0)),
        ] {
            assert_eq!(
                stage_of(status, &body, seconds, token, socket),
                expected,
                "{status} {body} {seconds}"
            );
        }
    }
}
